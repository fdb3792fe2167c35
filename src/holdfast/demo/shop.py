"""The shop: what it calls through guards, what it puts into the outbox, what it undoes, what it carries on.

The program that customers reach and the worker are two processes, and both make this object.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from holdfast import (
    BackoffPolicy,
    Breaker,
    Fallback,
    Holdfast,
    RecoveryPolicy,
    Retry,
    Saga,
    Step,
    Timeout,
    WorkerPolicy,
    consecutive,
    current_task,
    letter_id_of,
    task,
    workflow,
)
from holdfast.demo.outside import Outside, System

DATABASE: Final = "shop.db"
BOOK: Final = "outside.db"
OPEN_FOR_S: Final = 2.0
PACKING_S: Final = 1.2
DECLINED: Final = "declined"
_LEASE: Final = timedelta(seconds=6)


class CardDeclined(Exception):
    """The bank answers, and says no."""


class Shop:
    """Everything that the shop does, over one store."""

    def __init__(self, url: str, outside: Outside) -> None:
        # Somebody watches: what rests for half a minute in a program rests for a second or two here.
        recovery = RecoveryPolicy(settle_s=1.5, lease_s=_LEASE.total_seconds())
        self.hold = Holdfast(url, recovery=recovery, source="shop", durable=False)
        self.outside = outside
        self._guard()
        self._send()
        self._undo()
        self._carry_on()

    def look_up(self, article: str) -> str:
        """Whether the article is there; while the warehouse is away, what was last known."""
        found: str = self._look_up(article)
        return found

    def pay(self, order: str, cents: int) -> bool:
        """Charge the card: now, or when the bank is back; False if the order was lost."""
        try:
            self._charge(order, cents)
        except Exception as error:
            return letter_id_of(error) is not None
        return True

    def send_express(self, order: str, card: str = "") -> UUID:
        """Begin a saga: reserve, charge, book a courier, or undo it all."""
        with self.hold.sessions.begin() as session:
            return self.hold.sagas.start(session, "express", {"order": order, "card": card}, subject_id=order)

    def fulfil(self, order: str) -> str:
        """Begin a workflow: pick, pack and label, ship, tell the customer; its id."""
        return self.hold.workflows.start(self._fulfil, order, idempotency_key=f"fulfil-{order}").id

    def worker(self) -> Any:
        """What does in the background all that the shop has put off."""
        retry = BackoffPolicy(base_delay=timedelta(seconds=1), max_delay=timedelta(seconds=2), lease=_LEASE)
        return self.hold.worker(WorkerPolicy(poll_s=0.25, idle_s=1.0), backoff=retry, max_attempts=1000)

    def _guard(self) -> None:
        hold, outside = self.hold, self.outside
        breaker = Breaker(consecutive(5), open_for=OPEN_FOR_S)
        retry = Retry(attempts=2, base=0.05, cap=0.2)
        payments = hold.guard("payments", retry, breaker, Timeout(total=3), dead_letter=True)
        stock = hold.guard("stock", retry, breaker, Timeout(total=1), Fallback(value="as last seen", rejected=True))
        self._mail = hold.guard("mail", Breaker(consecutive(3), open_for=OPEN_FOR_S), Timeout(total=3))

        @payments.replayable(name="charge")
        def charge(order_id: str, cents: int) -> str:
            receipt = outside.ask(System.PAYMENTS, "charge", order_id, order_id)
            with hold.sessions.begin() as session:
                told = {"order": order_id, "cents": cents}
                hold.outbox.put(session, "send_receipt", told, target="mail", subject_id=order_id, dedupe_key=order_id)
            return receipt

        @stock
        def look_up(article: str) -> str:
            return outside.ask(System.STOCK, "look_up", article, article)

        self._charge: Callable[[str, int], str] = charge
        self._look_up = look_up

    def _send(self) -> None:
        outside = self.outside

        @self.hold.operation("send_receipt", guard=self._mail, sensitive=False)
        def send_receipt(order: str, cents: int) -> str:
            return outside.ask(System.MAIL, "send_receipt", order, order)

    def _undo(self) -> None:
        hold, outside = self.hold, self.outside

        @hold.operation("reserve", sensitive=False)
        def reserve(order: str, idempotency_key: UUID) -> str:
            return outside.ask(System.STOCK, "reserve", str(idempotency_key), order)

        @hold.operation("release", sensitive=False)
        def release(order: str, idempotency_key: UUID) -> str:
            return outside.ask(System.STOCK, "release", str(idempotency_key), order)

        @hold.operation("charge_card", permanent=(CardDeclined,), sensitive=False)
        def charge_card(order: str, card: str, idempotency_key: UUID) -> str:
            if card == DECLINED:
                raise CardDeclined
            return outside.ask(System.PAYMENTS, "charge_card", str(idempotency_key), order)

        @hold.operation("refund", sensitive=False)
        def refund(order: str, idempotency_key: UUID) -> str:
            return outside.ask(System.PAYMENTS, "refund", str(idempotency_key), order)

        @hold.operation("book_courier", sensitive=False)
        def book_courier(order: str, idempotency_key: UUID) -> str:
            return outside.ask(System.MAIL, "book_courier", str(idempotency_key), order)

        steps = (
            Step("stock", "reserve", compensation="release"),
            Step("payment", "charge_card", compensation="refund"),
            Step("courier", "book_courier", pivot=True),
        )
        hold.saga(Saga("express", steps))

    def _carry_on(self) -> None:
        outside = self.outside

        @task
        def pick(order: str) -> str:
            return outside.ask(System.STOCK, "pick", _key(), order, PACKING_S / 3)

        @task
        def pack(picked: str, order: str) -> str:
            return outside.ask(System.STOCK, "pack", _key(), order, PACKING_S)

        @task
        def label(order: str) -> str:
            return outside.ask(System.MAIL, "label", _key(), order, PACKING_S / 3)

        @task
        def ship(box: str, label: str, order: str) -> str:
            return outside.ask(System.MAIL, "ship", _key(), order, PACKING_S / 3)

        @workflow
        def fulfil(order: str) -> Any:
            return ship(pack(pick(order), order), label(order), order)

        self._fulfil = fulfil
        self.hold.workflows.register(pick, pack, label, ship)
        self.hold.workflows.add(fulfil)


def open_shop(folder: Path, database: Path) -> Shop:
    """The shop with that database, and the book of the world outside in the folder."""
    return Shop(f"sqlite:///{database}", Outside(folder / BOOK))


def _key() -> str:
    here = current_task()
    assert here is not None
    return here.idempotency_key
