"""A program with something to replay, for `--app tests.cli.shop:make`. It does as the environment says."""

from __future__ import annotations

import gc
import os
import sys
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

from holdfast import Breaker, Retry
from holdfast.app import Holdfast

URL: Final = "HOLDFAST_TEST_SHOP"
DOWN: Final = "HOLDFAST_TEST_SHOP_DOWN"
STUCK: Final = "HOLDFAST_TEST_SHOP_STUCK"
APP: Final = "tests.cli.shop:make"
CALLING: Final = "tests.cli.shop:calling"
WHOLE: Final = "tests.cli.shop:whole"
SEVEN: Final = 7


def opened(url: str) -> tuple[Holdfast, Callable[[str, int], int]]:
    """The shop, and its function that can be replayed."""
    hold = Holdfast(url)

    @hold.guard("payments", Retry(attempts=1), dead_letter=True).replayable(name="charge")
    def charge(order_id: str, amount: int) -> int:
        if os.environ.get(DOWN):
            raise ConnectionError("refused")
        if os.environ.get(STUCK):
            sys.stdout.write(f"stuck, {gc.get_freeze_count()} objects left alone\n")
            sys.stdout.flush()
            threading.Event().wait()
        return amount

    return hold, charge


def make() -> Holdfast:
    return opened(os.environ[URL])[0]


def guarded() -> Holdfast:
    """A shop with a breaker that it shares."""
    hold = make()
    hold.guard("stock", Breaker())
    return hold


def hasty() -> Holdfast:
    """A shop whose breakers have asked the store before anybody else does."""
    hold = guarded()
    hold.breakers.sharing.sync()
    return hold


def calling() -> Holdfast:
    """A shop with an outbox: what it sends is refused while the shop is down, what it keeps is put off."""
    from holdfast.outbox.operation import Park, StepEvents

    hold = make()

    def send(order_id: str, token: str = "", mail: str = "") -> dict[str, Any]:
        if os.environ.get(DOWN):
            raise ConnectionError("refused")
        return {"receipt": f"r-{order_id}"}

    hold.operation("send", events=StepEvents.of("send"), max_attempts=1)(send)
    hold.operation("charge", events=StepEvents.of("charge"), max_attempts=1, sensitive=True)(send)
    hold.operation("keep")(lambda order_id: Park(datetime(2099, 1, 1, tzinfo=UTC)))
    return hold


def keyed() -> Holdfast:
    """A shop whose audit trail has a key."""
    return Holdfast(os.environ[URL], audit_key=b"k3y-of-the-trail")


def ordering() -> Holdfast:
    """A shop whose orders are sagas."""
    from tests.outbox.sagas import order_saga

    hold = make()
    for name in ("reserve", "release", "charge", "refund", "ship", "unship"):
        hold.operation(name)(lambda **payload: None)
    hold.saga(order_saga())
    return hold


def fulfilling() -> Holdfast:
    """A shop whose orders are workflows: paid and packed at once, shipped when somebody has said so."""
    from holdfast.errors import PermanentError
    from holdfast.workflows.functions import task, workflow
    from holdfast.workflows.task_context import current_task
    from holdfast.workflows.waiting import wait_signal

    hold = make()

    @task
    def charge(order: dict[str, Any]) -> dict[str, Any]:
        if os.environ.get(DOWN):
            raise PermanentError("refused")
        return {"receipt": order["id"], "token": "t0p"}

    @hold.workflows.finalizers.add
    def tidy(order: int, password: str = "") -> None:
        if os.environ.get(DOWN):
            raise OSError("the table is locked")

    @task
    def pack(order: dict[str, Any]) -> str:
        here = current_task()
        assert here is not None
        here.finalize("tidy", order=order["id"], password="hunter2")
        return f"box {order['id']}"

    @task
    def ship(box: str, receipt: dict[str, Any]) -> str:
        return f"{box}, receipt {receipt['receipt']}"

    @workflow
    def fulfil(order: dict[str, Any]) -> Any:
        return ship(pack(order), charge(order), after=[wait_signal("approved")])  # type: ignore[call-arg]

    hold.workflows.register(charge, pack, ship)
    hold.workflows.add(fulfil)
    return hold


def looking() -> Holdfast:
    """The same shop, with a workflow whose body looks at its input."""
    from holdfast.workflows.functions import workflow

    hold = fulfilling()

    @workflow
    def charge_one(order: dict[str, Any]) -> Any:
        return hold.workflows.tasks["charge"](order["id"])

    hold.workflows.add(charge_one)
    return hold


def reporting() -> Holdfast:
    """The same shop, with reports that are written one at a time and have their figures from another workflow."""
    from holdfast.workflows.functions import task, workflow
    from holdfast.workflows.waiting import wait_signal

    hold = fulfilling()

    @task
    def print_out(figures: Any) -> str:
        return f"printed {figures}"

    @workflow
    def collect(day: str) -> Any:
        return wait_signal("figures")

    @workflow(limit=1)
    def report(day: str) -> Any:
        return print_out(collect(day))

    hold.workflows.register(print_out)
    hold.workflows.add(collect)
    hold.workflows.add(report)
    return hold


def whole() -> Holdfast:
    """A shop with all that there is: reports and orders, an outbox and sagas, guards and pools."""
    from holdfast.failover.pool import EndpointPool
    from holdfast.failover.rotation import ProxyRotator
    from tests.outbox.sagas import order_saga

    hold = reporting()
    hold.guard("stock", Breaker())
    hold.add_pool("cdn", EndpointPool(["a", "b"]))
    hold.add_pool("proxies", ProxyRotator(["p-1", "p-2"]))

    def call(**payload: Any) -> dict[str, Any]:
        if os.environ.get(DOWN):
            raise ConnectionError("refused")
        return {"receipt": "r-1", "token": "t0p"}

    for name in ("send", "reserve", "release", "charge", "refund", "ship", "unship"):
        hold.operation(name, max_attempts=1)(call)
    hold.saga(order_saga())
    return hold


def broken() -> Holdfast:
    raise RuntimeError("no configuration")
