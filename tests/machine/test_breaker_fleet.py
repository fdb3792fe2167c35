"""What processes tell each other through a record never lets more probes go than the policy says."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from holdfast.machine import breaker_fleet as fleet
from holdfast.machine import breaker_record as machine
from holdfast.machine.breaker import Breaker
from holdfast.machine.breaker_fleet import Fleet, Trip
from holdfast.machine.breaker_record import BreakerRecord, new_breaker
from holdfast.machine.trip import consecutive, ratio

SECOND = 1_000_000
START = 1_700_000_000 * SECOND
POLICY = Breaker(consecutive(1), successes=2, out_of=3, probes=2)


def trip(record: BreakerRecord | None, now: int = START, process: str = "a", **options: Any) -> BreakerRecord | None:
    said = Trip(process, fleet.sight(record), now + 30 * SECOND, 0, "down", 5)
    return fleet.vote(record, "api", now, said, options.get("quorum", 1), 60 * SECOND)


def opened(now: int = START) -> BreakerRecord:
    record = trip(None, now)
    assert record is not None
    return record


def lease(record: BreakerRecord | None, now: int, *tokens: str, policy: Breaker = POLICY) -> BreakerRecord | None:
    return fleet.lease(record, now, tokens, now + 30 * SECOND, policy.probes, policy.out_of, 30 * SECOND)


def settle(record: BreakerRecord, now: int, token: str, failed: bool, policy: Breaker = POLICY) -> BreakerRecord | None:
    return fleet.settle(record, now, token, (failed, 0.1), policy.verdict, lambda rounds: rounds * SECOND, "again")


def test_what_a_fleet_says_survives_being_written():
    said = Fleet(START, 2, "why", (("t", START),), ((True, 0.5), (False, 0.0)), (("p", START),), START)
    record = new_breaker("api", START)._replace(fleet=fleet.write(said))
    assert fleet.read(record) == said
    assert fleet.write(Fleet()) == ""
    assert fleet.read(new_breaker("api", START)) == Fleet()


def test_a_breaker_that_never_moved_is_like_one_that_is_not_there():
    assert fleet.sight(None) == fleet.sight(new_breaker("api", START)) == fleet.NEW
    assert trip(new_breaker("api", START)) is not None


def test_a_vote_about_another_life_of_the_breaker_is_not_heeded():
    record = machine.reset(opened(), START)
    assert trip(record) is not None
    stale = Trip("a", fleet.NEW, START, 0, "", 1)
    assert fleet.vote(record, "api", START, stale, 1, SECOND) is None
    assert trip(opened()) is None


def test_a_vote_against_a_pin_is_not_heeded():
    held = machine.pin(new_breaker("api", START), START, "closed", None, "", START + SECOND)
    assert trip(held) is None
    assert trip(held, START + SECOND) is not None


def test_votes_are_counted_once_each_and_withdrawn():
    record = trip(None, process="a", quorum=3)
    record = trip(record, START + 1, process="a", quorum=3)
    record = trip(record, START + 2, process="b", quorum=3)
    assert record is not None
    assert record.state == "closed"
    assert [process for process, _ in fleet.read(record).votes] == ["a", "b"]
    alone = fleet.withdraw(record, START + 3, "a")
    assert alone is not None
    assert fleet.withdraw(alone, START + 3, "a") is None
    full = trip(record, START + 4, process="c", quorum=3)
    assert full is not None
    assert full.state == "open"


def test_leave_is_given_when_the_open_time_is_over_and_not_before():
    record = opened()
    assert lease(record, START + 29 * SECOND, "t") is None
    trial = lease(record, START + 30 * SECOND, "t")
    assert trial is not None
    assert (trial.state, trial.half_open_request_count) == ("half_open", 1)


def test_leave_that_ran_out_or_came_back_goes_to_another():
    now = START + 30 * SECOND
    trial = lease(opened(), now, "a", "b")
    assert trial is not None
    assert lease(trial, now, "c") is None
    assert lease(trial, now + 29 * SECOND, "c") is None
    later = lease(trial, now + 30 * SECOND, "c")
    assert later is not None
    assert [token for token, _ in fleet.read(later).leases] == ["c"]
    back = fleet.give_back(trial, now, ["a"])
    assert back is not None
    assert lease(back, now, "c") is not None
    assert fleet.give_back(back, now, ["a"]) is None


def test_leave_that_is_renewed_lasts():
    now = START + 30 * SECOND
    trial = lease(opened(), now, "a", "b")
    renewed = fleet.renew(trial, now, {"a", "b", "x"}, now + 60 * SECOND)
    assert renewed is not None
    assert lease(renewed, now + 30 * SECOND, "c") is None
    assert fleet.renew(renewed, now, {"x"}, now + 90 * SECOND) is None


def test_whoever_wants_leave_asks_once():
    now = START + 30 * SECOND
    trial = lease(opened(), now, "a", "b")
    wanted = fleet.want(trial, now)
    assert wanted is not None
    assert fleet.want(wanted, now) is None
    assert fleet.want(opened(), now) is None
    assert fleet.want(None, now) is None


def test_slots_of_holders_that_are_gone_do_not_block_for_ever():
    record = machine.try_trial(opened(), START, 3, 60 * SECOND).after
    for _ in range(2):
        assert record is not None
        record = machine.try_trial(record, START, 3, 60 * SECOND).after
    assert lease(record, START + 30 * SECOND, "t") is None
    assert lease(record, START + 31 * SECOND, "t") is not None


def test_a_ratio_judges_when_all_results_are_in():
    policy = Breaker(ratio(0.5, min_calls=1, window=60), successes=1, out_of=4)
    record = lease(opened(), START + 30 * SECOND, *"abcd", policy=policy)
    for token in "abc":
        assert record is not None
        record = settle(record, START + 31 * SECOND, token, failed=False, policy=policy)
    assert record is not None
    assert record.state == "half_open"
    closed = settle(record, START + 31 * SECOND, "d", failed=True, policy=policy)
    assert closed is not None
    assert closed.state == "closed"


def test_only_the_life_that_was_seen_is_closed_or_reopened():
    record = opened()
    assert fleet.recover(record, START, fleet.NEW) is None
    closed = fleet.recover(record, START, fleet.sight(record))
    assert closed is not None
    assert closed.state == "closed"
    trial = lease(record, START + 30 * SECOND, "t")
    assert trial is not None
    assert fleet.relapse(trial, START, fleet.sight(record), START, "") is None
    again = fleet.relapse(trial, START, fleet.sight(trial), START + SECOND, "late")
    assert again is not None
    assert fleet.read(again) == Fleet(START + SECOND, 1, "late")


STEP = st.tuples(
    st.sampled_from(["lease", "good", "bad", "back", "renew", "wait", "trip", "open", "reset"]), st.integers(0, 3)
)


@given(st.lists(STEP, max_size=60))
def test_there_are_never_more_probes_than_the_policy_says(steps):
    record: BreakerRecord | None = None
    now, made = START, 0
    held: list[str] = []
    for name, number in steps:
        before, token = record, held[number % len(held)] if held else "none"
        after: BreakerRecord | None = None
        match name:
            case "lease":
                fresh = [f"t{made + n}" for n in range(number)]
                made += number
                after = lease(record, now, *fresh)
                if after is not None:
                    held += [one for one, _ in fleet.read(after).leases if one in fresh]
            case "good" | "bad":
                after = None if record is None else settle(record, now, token, name == "bad")
            case "back":
                after = fleet.give_back(record, now, [token])
            case "renew":
                after = fleet.renew(record, now, [token], now + 30 * SECOND)
            case "wait":
                now += number * 10 * SECOND
            case "trip":
                after = trip(record, now)
            case "open":
                after = None if record is None else machine.pin(record, now, "open", None, "", now + 20 * SECOND)
            case "reset":
                after = None if record is None else machine.reset(record, now)
        if after is None:
            continue
        record = after
        said = fleet.read(after)
        live = [end for _, end in said.leases if end > now]
        assert len(live) <= POLICY.probes
        assert len(said.leases) + len(said.results) <= POLICY.out_of
        assert after.version == (now if before is None else before.version + 1)
        if after.state != "half_open":
            assert not said.leases
            assert not said.results
        else:
            assert after.half_open_request_count == len(said.leases) + len(said.results)
