"""A bulk operation: the same act on every entry that a filter found, by whichever worker is there.

| from             | by      | to      |
|------------------|---------|---------|
| –                | start   | pending |
| pending, running | take    | running |
| running          | advance | running |
| running          | park    | running |
| running          | finish  | done    |
| running          | fail    | failed  |
| pending, running | abort   | aborted |

`due_at` is when a worker should look: at once while pending, at the end of the holder's lease while running, never
afterwards. The holder's token is the fence: who has lost the lease can neither advance nor finish.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

from holdfast.store.codec import from_json, to_json
from holdfast.store.record import Index, Kind, evolve


class BulkState(StrEnum):
    """Where a bulk operation is."""

    PENDING = "pending"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    ABORTED = "aborted"


class BulkAction(StrEnum):
    """What is done to each entry."""

    REPLAY = "replay"
    FORCE_REPLAY = "force_replay"
    RESOLVE = "resolve"
    DISCARD = "discard"


class Verb(StrEnum):
    TAKE = "take"
    ADVANCE = "advance"
    PARK = "park"
    FINISH = "finish"
    FAIL = "fail"
    ABORT = "abort"


TRANSITIONS: Final[dict[tuple[BulkState, Verb], BulkState]] = {
    (BulkState.PENDING, Verb.TAKE): BulkState.RUNNING,
    (BulkState.RUNNING, Verb.TAKE): BulkState.RUNNING,
    (BulkState.RUNNING, Verb.ADVANCE): BulkState.RUNNING,
    (BulkState.RUNNING, Verb.PARK): BulkState.RUNNING,
    (BulkState.RUNNING, Verb.FINISH): BulkState.DONE,
    (BulkState.RUNNING, Verb.FAIL): BulkState.FAILED,
    (BulkState.PENDING, Verb.ABORT): BulkState.ABORTED,
    (BulkState.RUNNING, Verb.ABORT): BulkState.ABORTED,
}
FINISHED: Final = frozenset({BulkState.DONE, BulkState.FAILED, BulkState.ABORTED})


class BulkRecord(NamedTuple):
    """One bulk operation.

    `filter` is JSON. `upper_at` bounds the entries' creation: what fails later is not part of it. `cursor_at` and
    `cursor_id` are the last entry that was dealt with; replays go on domain by domain, and `ahead` (JSON) is how far
    each of them is.
    """

    id: str
    version: int
    due_at: int | None
    state: str
    action: str
    filter: str
    upper_at: int
    total: int
    cursor_at: int | None
    cursor_id: str | None
    ahead: str
    done: int
    succeeded: int
    failed: int
    skipped: int
    requested_by: str
    reason: str
    note: str
    holder: str | None
    created_at: int
    started_at: int | None
    finished_at: int | None


BULK: Final = Kind(
    "letter_bulk",
    BulkRecord,
    indexes=(Index((), "due_at"), Index((), "created_at"), Index(("state",), "created_at")),
    tally=("state",),
)


class Place(NamedTuple):
    """How far an operation is in one domain: the last entry that was dealt with in order, and the ids beyond it."""

    at: int | None = None
    id: str | None = None
    beyond: tuple[str, ...] = ()


def place_in(record: BulkRecord, domain: str) -> Place:
    at, id, beyond = from_json(record.ahead).get(domain, (None, None, ()))
    return Place(at, id, tuple(beyond))


def placed(record: BulkRecord, domain: str, place: Place) -> str:
    """The record's `ahead` when the domain is so far."""
    return to_json({**from_json(record.ahead), domain: place})


class Step(NamedTuple):
    """What was done since the record was last saved."""

    cursor_at: int | None
    cursor_id: str | None
    ahead: str = "{}"
    succeeded: int = 0
    failed: int = 0
    skipped: int = 0


def start(id: str, now: int, action: BulkAction, filter: str, total: int, requested_by: str, reason: str) -> BulkRecord:
    """A new operation on the `total` entries that match now."""
    return BulkRecord(
        id, 1, now, BulkState.PENDING, action, filter, now, total, None, None, "{}", 0, 0, 0, 0, requested_by, reason,
        "", None, now, None, None,
    )  # fmt: skip


def still(record: BulkRecord) -> Step:
    """Nothing was done."""
    return Step(record.cursor_at, record.cursor_id, record.ahead)


def take(found: BulkRecord | None, token: str, now: int, lease: int) -> BulkRecord | None:
    """The operation in the hands of a worker; None while another one holds it, or when it is over."""
    if found is None or found.due_at is None or found.due_at > now or (state := _next(found, Verb.TAKE)) is None:
        return None
    started = now if found.started_at is None else found.started_at
    return evolve(found, state=state, holder=token, due_at=now + lease, started_at=started, note="")


def advance(found: BulkRecord | None, token: str, step: Step, now: int, lease: int) -> BulkRecord | None:
    """Save what was done, and hold on; None when the lease is lost or somebody has aborted it."""
    return _step(found, token, Verb.ADVANCE, step, now + lease, None)


def extend(found: BulkRecord | None, token: str, now: int, lease: int) -> BulkRecord | None:
    """Hold on; None when the lease is lost or somebody has aborted it."""
    return None if found is None else advance(found, token, still(found), now, lease)


def park(found: BulkRecord | None, token: str, step: Step, until: int, note: str) -> BulkRecord | None:
    """Save what was done and let go: any worker may carry on from `until`."""
    parked = _step(found, token, Verb.PARK, step, until, None)
    return None if parked is None else parked._replace(holder=None, note=note)


def finish(found: BulkRecord | None, token: str, step: Step, now: int) -> BulkRecord | None:
    return _step(found, token, Verb.FINISH, step, None, now)


def fail(found: BulkRecord | None, token: str, note: str, now: int) -> BulkRecord | None:
    """It cannot go on; the note says why."""
    if found is None:
        return None
    stopped = _step(found, token, Verb.FAIL, still(found), None, now)
    return None if stopped is None else stopped._replace(note=note)


def abort(found: BulkRecord | None, by: str, now: int) -> BulkRecord | None:
    """Stop it; what was done stays done. None when it is over already."""
    if found is None or (state := _next(found, Verb.ABORT)) is None:
        return None
    note = f"aborted by {by}" if by else "aborted"
    return evolve(found, state=state, holder=None, due_at=None, finished_at=now, note=note)


def _next(found: BulkRecord, verb: Verb) -> BulkState | None:
    return TRANSITIONS.get((BulkState(found.state), verb))


def _step(
    found: BulkRecord | None, token: str, verb: Verb, step: Step, due_at: int | None, finished_at: int | None
) -> BulkRecord | None:
    if found is None or found.holder != token or (state := _next(found, verb)) is None:
        return None
    return evolve(
        found,
        state=state,
        due_at=due_at,
        cursor_at=step.cursor_at,
        cursor_id=step.cursor_id,
        ahead=step.ahead,
        done=found.done + step.succeeded + step.failed + step.skipped,
        succeeded=found.succeeded + step.succeeded,
        failed=found.failed + step.failed,
        skipped=found.skipped + step.skipped,
        holder=None if finished_at is not None else token,
        finished_at=finished_at,
    )
