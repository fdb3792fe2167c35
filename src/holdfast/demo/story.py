"""The story, chapter by chapter. What it tells of has happened: each chapter waits until the store says so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from holdfast.demo.customers import QUIETLY
from holdfast.demo.outside import System
from holdfast.demo.shop import DECLINED, OPEN_FOR_S
from holdfast.demo.stage import Stage
from holdfast.machine.saga import SagaState
from holdfast.machine.workflow import WorkflowStatus

Chapter = tuple[str, Callable[[Stage], None]]
ENOUGH_ORDERS: Final = 20
ENOUGH_RECEIPTS: Final = 15
ENOUGH_LETTERS: Final = 25
_SOON_S: Final = 30.0
_PATIENCE_S: Final = 60.0
_CAUGHT_UP: Final = 10
SAGA_ORDER: Final = "x-declined"
WORKFLOW_ORDER: Final = "p-killed"


def all_is_well(stage: Stage) -> None:
    """Customers order, the bank is asked, receipts go out."""
    stage.customers.start()
    stage.tell(f"customers order; the worker is process {stage.crew.pid}")
    stage.until("orders are paid for", _PATIENCE_S, lambda _: len(stage.customers.placed) >= ENOUGH_ORDERS)
    stage.until("receipts go out", _PATIENCE_S, lambda now: now.entries_done >= ENOUGH_ORDERS // 2)
    stage.tell(f"{len(stage.customers.placed)} orders paid for; the outbox sends a receipt for each")
    stage.pause(3)


def mail_is_away(stage: Stage) -> None:
    """Receipts wait in the outbox, and customers notice nothing."""
    stage.shop.outside.fail(System.MAIL)
    stage.tell("the post office does not answer")
    stage.until("receipts wait in the outbox", _SOON_S, lambda now: now.entries_waiting >= ENOUGH_RECEIPTS)
    stage.until("the breaker of mail opens", _SOON_S, lambda now: now.breakers.get("mail") == "open")
    stage.tell(f"{stage.look().entries_waiting} receipts wait in the outbox; customers notice nothing")
    stage.pause(1)


def bank_is_away(stage: Stage) -> None:
    """The breaker opens, and what customers ordered is kept."""
    stage.shop.outside.fail(System.PAYMENTS)
    stage.tell("the bank does not answer either")
    took = stage.until("the breaker opens", _SOON_S, lambda now: now.breakers.get("payments") == "open")
    stage.tell(f"breaker payments is open, after {took:.1f} s: calls are refused at once, and nobody waits")
    stage.until("dead letters pile up", _SOON_S, lambda now: now.letters_waiting >= ENOUGH_LETTERS)
    stage.tell(f"{stage.look().letters_waiting} orders are kept as dead letters; every {OPEN_FOR_S:g} s a call probes")
    stage.pause(2)


def bank_is_back(stage: Stage) -> None:
    """The breaker closes, and the letters drain by themselves."""
    stage.shop.outside.repair(System.PAYMENTS)
    stage.tell("the bank is back")
    took = stage.until("the breaker closes", _SOON_S, lambda now: now.breakers.get("payments") == "closed")
    kept = stage.look().letters_kept
    stage.tell(f"a probe succeeded {took:.1f} s later: breaker payments is closed, and the letters go out again")
    took = stage.until("the letters drain", _PATIENCE_S, lambda now: not now.letters_waiting)
    stage.tell(f"all {kept} letters are replayed, in {took:.1f} s, gently at first")
    stage.pause(1)


def mail_is_back(stage: Stage) -> None:
    """The outbox catches up."""
    waiting = stage.look().entries_waiting
    stage.shop.outside.repair(System.MAIL)
    stage.tell(f"the post office is back; {waiting} receipts wait")
    took = stage.until("the outbox catches up", _PATIENCE_S, lambda now: now.entries_waiting <= _CAUGHT_UP)
    stage.tell(f"the outbox has caught up, in {took:.1f} s")
    stage.pause(1)


def saga_is_undone(stage: Stage) -> None:
    """A card is declined, and what was done before is undone."""
    hold = stage.shop.hold
    id = stage.shop.send_express(SAGA_ORDER, DECLINED)
    stage.tell("an express order: reserve, charge, book a courier; but the card will be declined")

    def is_undone(_: object) -> bool:
        saga = hold.sagas.get(id)
        return saga is not None and saga.state is SagaState.COMPENSATED

    stage.until("the saga is compensated", _PATIENCE_S, is_undone)
    steps = [f"{entry.operation} {entry.status}" for entry in hold.sagas.history(id)]
    stage.tell(f"the saga is compensated: {', '.join(steps)}")
    stage.pause(2)


def worker_is_killed(stage: Stage) -> None:
    """A workflow goes on where a killed worker has left it."""
    shop, crew, workflows = stage.shop, stage.crew, stage.shop.hold.workflows
    id = shop.fulfil(WORKFLOW_ORDER)
    stage.tell("a parcel: pick, pack and label, ship, as a workflow")
    stage.until("somebody packs", _PATIENCE_S, lambda _: shop.outside.asked("pack", WORKFLOW_ORDER) == 1)
    old = crew.pid
    crew.kill()
    stages = ", ".join(f"{ref} {status}" for ref, status in workflows.stages(id).items())
    stage.tell(f"worker {old} is killed (SIGKILL) in the middle of packing: {stages}")
    stage.pause(2)
    new = crew.start()
    stage.tell(f"another worker, process {new}, finds what the dead one has left")
    stage.until("the workflow survives", _PATIENCE_S, lambda _: workflows.get(id).status is WorkflowStatus.SUCCEEDED)
    asked = shop.outside.asked("pack", WORKFLOW_ORDER)
    stage.until("it is packed once", 0.0, lambda _: shop.outside.times_done("pack")[WORKFLOW_ORDER] == 1)
    stage.tell(f"the parcel is shipped; the warehouse was asked {asked} times to pack, and packed once")
    stage.pause(2)


def nothing_is_lost(stage: Stage) -> None:
    """The shop closes for a moment, and the books are compared."""
    customers, outside = stage.customers, stage.shop.outside
    customers.stop()
    stage.until("every letter is replayed", _PATIENCE_S, lambda now: not now.letters_waiting)
    stage.until("every entry is done", _PATIENCE_S, lambda now: not now.entries_waiting)
    stage.until(
        "every workflow has ended", _PATIENCE_S, lambda now: set(now.workflows) <= {str(WorkflowStatus.SUCCEEDED)}
    )
    once = dict.fromkeys(customers.placed, 1)
    stage.until("the bank has each order once", 0.0, lambda _: outside.times_done("charge") == once)
    stage.until("the post has each receipt once", 0.0, lambda _: outside.times_done("send_receipt") == once)
    stage.tell(f"the bank's book: {len(once)} orders, each charged once; the post's: a receipt for each")


def goes_on(stage: Stage, outages: Callable[[], tuple[System, float, float]]) -> None:
    """Quieter, with an outage now and then, until somebody wants an end."""
    stage.customers.per_second = QUIETLY
    stage.customers.start()
    while True:
        system, rest, lasts = outages()
        stage.pause(rest)
        stage.shop.outside.fail(system)
        stage.tell(f"{system} is down")
        stage.pause(lasts)
        stage.shop.outside.repair(system)
        stage.tell(f"{system} is back")


CHAPTERS: Final[tuple[Chapter, ...]] = (
    ("All is well", all_is_well),
    ("The post office is away", mail_is_away),
    ("The bank is away", bank_is_away),
    ("The bank is back", bank_is_back),
    ("The post office is back", mail_is_back),
    ("A saga is undone", saga_is_undone),
    ("A worker is killed", worker_is_killed),
    ("Nothing is lost", nothing_is_lost),
)
