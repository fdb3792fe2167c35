"""The workflow, and its tasks."""

from __future__ import annotations

from typing import Any

from examples.fulfilment.outside import Outside
from holdfast import Holdfast, Workflows, current_task, task, wait_signal, workflow

APPROVED_ABOVE = 100_00
TWO_DAYS_S = 2 * 86400


class Orders:
    """`fulfil` is the workflow. Whoever is called gets the key of the task, the same however often it is run."""

    def __init__(self, outside: Outside) -> None:
        @task
        def charge(order: dict[str, Any]) -> str:
            return outside.charge(key(), order["cents"])

        @task
        def pack(order: dict[str, Any]) -> str:
            return outside.pack(key(), order["item"])

        @task
        async def label(order: dict[str, Any]) -> str:
            return f"to {order['address']}"

        @task
        def ship(box: str, label: str, receipt: str) -> str:
            return outside.ship(key(), f"{box} {label}, {receipt}")

        @workflow
        def fulfil(order: dict[str, Any]) -> Any:
            paid: Any = charge(order)
            ready = paid
            if order["cents"] > APPROVED_ABOVE:  # the input is known here; what tasks will leave is not
                ready = wait_signal("approved", timeout=TWO_DAYS_S, after=paid)
            return ship(pack(order, after=ready), label(order), paid)

        self.fulfil = fulfil
        self.tasks = (charge, pack, label, ship)

    def known_to(self, hold: Holdfast) -> Workflows:
        """`hold.workflows`, with these tasks: a worker runs what it knows."""
        hold.workflows.register(*self.tasks)
        return hold.workflows


def key() -> str:
    here = current_task()
    assert here is not None
    return here.idempotency_key
