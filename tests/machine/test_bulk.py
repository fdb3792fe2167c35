"""The life of a bulk operation."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.machine import bulk as machine
from holdfast.machine.bulk import FINISHED, TRANSITIONS, BulkAction, BulkRecord, BulkState, Place, Step, Verb

MINE, OTHER = "token-a", "token-b"
LEASE = 60


def fresh() -> BulkRecord:
    return machine.start("b1", 100, BulkAction.REPLAY, "{}", 9, "ops", "outage")


def held(now: int = 100) -> BulkRecord:
    taken = machine.take(fresh(), MINE, now, LEASE)
    assert taken is not None
    return taken


def test_a_new_operation_waits_for_a_worker() -> None:
    assert (fresh().state, fresh().due_at, fresh().holder) == ("pending", 100, None)


def test_one_worker_holds_it_until_its_lease_ends() -> None:
    taken = held()
    assert (taken.state, taken.due_at, taken.started_at) == ("running", 160, 100)
    assert machine.take(taken, OTHER, 159, LEASE) is None
    later = machine.take(taken, OTHER, 160, LEASE)
    assert later is not None
    assert (later.holder, later.started_at) == (OTHER, 100)


def test_who_lost_the_lease_can_neither_advance_nor_finish_nor_fail() -> None:
    later = machine.take(held(), OTHER, 160, LEASE)
    step = Step(7, "x", succeeded=3)
    assert machine.advance(later, MINE, step, 161, LEASE) is None
    assert machine.park(later, MINE, step, 200, "") is None
    assert machine.finish(later, MINE, step, 161) is None
    assert machine.fail(later, MINE, "no", 161) is None


def test_counts_add_up() -> None:
    saved = machine.advance(held(), MINE, Step(5, "e", "{}", 3, 1, 1), 110, LEASE)
    assert saved is not None
    saved = machine.advance(saved, MINE, Step(9, "i", "{}", 2, 0, 0), 120, LEASE)
    assert saved is not None
    assert (saved.done, saved.succeeded, saved.failed, saved.skipped) == (7, 5, 1, 1)
    assert (saved.cursor_at, saved.cursor_id, saved.due_at) == (9, "i", 180)


def test_how_far_it_is_is_kept_for_each_domain() -> None:
    record = fresh()
    assert machine.place_in(record, "a") == Place()
    for domain, place in (("a", Place(5, "e", ("g", "h"))), ("b", Place(7, "x")), ("a", Place(9, "i"))):
        saved = machine.advance(
            held()._replace(ahead=record.ahead), MINE, Step(None, None, machine.placed(record, domain, place)), 1, LEASE
        )
        assert saved is not None
        record = saved
        assert machine.place_in(record, domain) == place
    assert machine.place_in(record, "b") == Place(7, "x")


def test_a_parked_operation_is_free_for_any_worker_when_it_is_due() -> None:
    parked = machine.park(held(), MINE, Step(None, None), 500, "waits")
    assert parked is not None
    assert (parked.holder, parked.due_at, parked.note) == (None, 500, "waits")
    assert machine.take(parked, OTHER, 499, LEASE) is None
    assert machine.take(parked, OTHER, 500, LEASE) is not None


def test_an_aborted_operation_cannot_be_carried_on() -> None:
    aborted = machine.abort(held(), "ops", 130)
    assert aborted is not None
    assert (aborted.state, aborted.due_at, aborted.finished_at, aborted.note) == (
        "aborted",
        None,
        130,
        "aborted by ops",
    )
    assert machine.advance(aborted, MINE, Step(1, "a"), 131, LEASE) is None
    assert machine.take(aborted, OTHER, 10**9, LEASE) is None


def test_nothing_leaves_a_finished_state() -> None:
    assert not [(state, verb) for state, verb in TRANSITIONS if state in FINISHED]


def test_what_is_not_there_stays_so() -> None:
    assert machine.take(None, MINE, 0, LEASE) is None
    assert machine.abort(None, "", 0) is None
    assert machine.advance(None, MINE, Step(None, None), 0, LEASE) is None
    assert machine.fail(None, MINE, "", 0) is None


@given(st.lists(st.sampled_from(list(Verb)), max_size=12))
def test_only_what_the_table_allows_happens_and_each_step_is_a_version(verbs: list[Verb]) -> None:
    record, now = fresh(), 100
    for verb in verbs:
        now += 100
        step = Step(now, "x", succeeded=1)
        after = {
            Verb.TAKE: lambda r, n=now: machine.take(r, MINE, n, LEASE),
            Verb.ADVANCE: lambda r, n=now, s=step: machine.advance(r, MINE, s, n, LEASE),
            Verb.PARK: lambda r, n=now, s=step: machine.park(r, MINE, s, n, ""),
            Verb.FINISH: lambda r, n=now, s=step: machine.finish(r, MINE, s, n),
            Verb.FAIL: lambda r, n=now: machine.fail(r, MINE, "", n),
            Verb.ABORT: lambda r, n=now: machine.abort(r, "", n),
        }[verb](record)
        if after is None:
            continue
        assert TRANSITIONS[BulkState(record.state), verb] == after.state
        assert after.version == record.version + 1
        assert after.done >= record.done
        assert (after.due_at is None) == (after.state in FINISHED)
        record = after
