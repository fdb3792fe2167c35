"""The first chapter of the demo: reproducible, fair to both halves, and worth showing."""

from __future__ import annotations

from itertools import pairwise

import pytest

from holdfast import CircuitState
from holdfast.demo.twice.dependency import PATIENCE, SPELLS, timetable
from holdfast.demo.twice.figures import course, quantile, state_at, totals
from holdfast.demo.twice.half import ORDERS, RATE, Answer, Half
from holdfast.demo.twice.run import run_half


@pytest.fixture(scope="module")
def bare() -> Half:
    return run_half(guarded=False, seed=7, seconds=10)


@pytest.fixture(scope="module")
def guarded() -> Half:
    return run_half(guarded=True, seed=7, seconds=10)


def test_the_same_seed_gives_the_same_run(bare: Half, guarded: Half) -> None:
    assert run_half(guarded=False, seed=7, seconds=10) == bare
    assert run_half(guarded=True, seed=7, seconds=10) == guarded


def test_another_seed_gives_another_run(guarded: Half) -> None:
    assert run_half(guarded=True, seed=8, seconds=10).calls != guarded.calls


def test_both_halves_meet_the_same_load_and_the_same_luck(bare: Half, guarded: Half) -> None:
    assert [call.start for call in bare.calls] == pytest.approx([call.start for call in guarded.calls])
    assert len(bare.calls) == 10 * RATE
    undisturbed = [[call.took for call in half.calls if call.end < half.stretches[0].end] for half in (bare, guarded)]
    assert undisturbed[0] == pytest.approx(undisturbed[1])


@pytest.mark.parametrize(("seed", "seconds"), [(0, 10), (1, 10), (7, 10), (7, 4), (3, 20)])
def test_the_guard_beats_no_guard_in_what_the_summary_shows(seed: int, seconds: float) -> None:
    without = totals(run_half(guarded=False, seed=seed, seconds=seconds))
    with_guard = totals(run_half(guarded=True, seed=seed, seconds=seconds))
    assert with_guard.answered > without.answered + 0.2
    assert with_guard.p50 < without.p50
    assert with_guard.p99 < without.p99 / 2
    assert with_guard.wasted < without.wasted / 10
    assert with_guard.reached_in_outage < without.reached_in_outage / 5
    assert without.reached_in_outage == without.offered_in_outage == with_guard.offered_in_outage
    assert with_guard.unplaced == 0 < with_guard.letters
    assert without.unplaced > 20
    assert with_guard.drained_in is not None
    assert with_guard.drained_in < seconds / 2
    assert with_guard.replays_while_open == 0


def test_every_call_is_counted_once(bare: Half, guarded: Half) -> None:
    for half in (bare, guarded):
        sums = totals(half)
        assert sums.fresh + sums.fallback + sums.kept + sums.failed == sums.calls == len(half.calls)
    assert totals(bare).fallback == totals(bare).kept == 0
    assert totals(guarded).retries > 0
    assert totals(guarded).refusals["circuit_open"] > 200


def test_the_breaker_opens_in_the_outage_and_closes_after_it(guarded: Half) -> None:
    assert state_at(guarded, guarded.outage.start) is CircuitState.CLOSED
    assert state_at(guarded, guarded.outage.start + 1) is CircuitState.OPEN
    assert state_at(guarded, guarded.seconds) is CircuitState.CLOSED
    assert guarded.outage.end < guarded.changes[-1].at < guarded.outage.end + 1


def unplaced_at(half: Half, moment: float) -> int:
    kept = sum(letter.kept <= moment for letter in half.letters)
    return kept - sum(letter.placed is not None and letter.placed <= moment for letter in half.letters)


def test_dead_letters_pile_up_in_the_outage_and_drain_after_it(guarded: Half) -> None:
    outage, closed = guarded.outage, guarded.changes[-1].at
    assert unplaced_at(guarded, outage.start) == 0
    piling = [unplaced_at(guarded, outage.start + step / 4) for step in range(11)]
    assert piling == sorted(piling)
    assert piling[-1] > 60
    draining = [unplaced_at(guarded, closed + step / 4) for step in range(10)]
    assert draining == sorted(draining, reverse=True)
    assert draining[0] > 60
    assert draining[-1] == 0


def test_every_order_is_placed_once_with_a_guard_and_many_never_without(bare: Half, guarded: Half) -> None:
    orders = range(0, 10 * RATE, ORDERS)
    assert guarded.placed == dict.fromkeys(orders, 1)
    assert len(bare.placed) == len(orders) - totals(bare).lost
    assert totals(bare).lost > 60


def test_every_caller_of_an_order_that_failed_was_told_that_it_is_kept(guarded: Half) -> None:
    told = [call for call in guarded.calls if call.answer is Answer.KEPT]
    assert all(call.is_order for call in told)
    assert [call.end for call in sorted(told, key=lambda call: call.end)] == pytest.approx(
        [letter.kept for letter in guarded.letters], abs=1e-5
    )


def test_no_replay_is_spent_on_an_open_breaker(guarded: Half) -> None:
    tries = [at for letter in guarded.letters for at in letter.tries]
    assert len(tries) == len(guarded.letters)
    assert {state_at(guarded, at) for at in tries} == {CircuitState.CLOSED}


def test_the_drain_goes_in_growing_rounds(guarded: Half) -> None:
    assert 1 < guarded.rounds < len(guarded.letters) / 4


def test_nobody_waits_longer_than_the_load_balancer(bare: Half) -> None:
    assert max(call.took for call in bare.calls) == pytest.approx(PATIENCE)


def test_a_bare_call_that_starts_in_the_outage_fails(bare: Half) -> None:
    caught = [call.answer for call in bare.calls if bare.outage.start <= call.start < bare.outage.end]
    assert set(caught) == {Answer.FAILED}


def test_the_spells_fill_the_run_without_a_gap() -> None:
    stretches = timetable(7.3)
    assert sum(spell.share for spell in SPELLS) == pytest.approx(1)
    assert stretches[0].start == 0
    assert stretches[-1].end == pytest.approx(7.3)
    assert all(one.end == after.start for one, after in pairwise(stretches))


def test_the_course_has_every_call_and_every_arrival(bare: Half) -> None:
    pieces = course(bare, 50)
    assert len(pieces) == 50
    assert sum(piece.load * (piece.end - piece.start) for piece in pieces) == pytest.approx(len(bare.arrivals))
    assert pieces[-1].unplaced == totals(bare).lost


@pytest.mark.parametrize(("q", "value"), [(0.0, 1.0), (0.5, 2.0), (0.99, 4.0), (1.0, 4.0)])
def test_a_quantile_is_one_of_the_values(q: float, value: float) -> None:
    assert quantile([1.0, 2.0, 3.0, 4.0], q) == value
    assert quantile([], q) == 0.0
