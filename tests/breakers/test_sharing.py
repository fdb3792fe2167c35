"""One breaker in several processes: what one decides the others follow, and none waits for the store."""

from __future__ import annotations

import threading
from collections import deque
from datetime import timedelta

import pytest

from holdfast.backends.memory import MemoryStore
from holdfast.breakers.events import SharingChanged
from holdfast.breakers.share import Token
from holdfast.breakers.sharing import Sharing
from holdfast.errors import PolicyError
from holdfast.machine.breaker import CLOSED, HALF_OPEN, OPEN, Breaker
from holdfast.machine.breaker_record import BREAKER
from holdfast.machine.circuit import Refusal
from holdfast.machine.trip import consecutive
from holdfast.store.codec import from_json, to_json
from holdfast.store.port import Swap
from holdfast.store.record import evolve
from tests.breakers.fleet import FAILURE, NEUTRAL, SUCCESS, Flaky, Process, sync


@pytest.fixture
def flaky(store):
    return Flaky(store)


@pytest.fixture
def two(flaky, clock):
    return Process(flaky, clock), Process(flaky, clock)


def open_all(clock, *processes):
    """The breaker of all of them is open, and may be tried."""
    processes[0].fail()
    sync(*processes)
    assert {process.state for process in processes} == {OPEN}
    clock.advance(30)
    sync(*processes)


def demand(*processes):
    """Each is asked once, in vain, and fetches what it can."""
    sync(*processes)
    for process in processes:
        assert process.is_refused()
    sync(*processes)


class TestFollowing:
    def test_a_trip_opens_the_breaker_everywhere(self, two, breakers, clock):
        one, other = two
        one.fail()
        assert one.state is OPEN
        assert other.state is CLOSED
        sync(one, other)
        assert other.state is OPEN
        assert other.is_refused()
        state = breakers.get_by_service_name("api")
        assert (state.state, state.failure_count, state.generation) == ("open", 1, 1)
        assert state.opened_at == state.last_failure_at == clock.wall()

    def test_the_one_that_made_it_and_those_that_follow_tell_it_once_each(self, two):
        one, other = two
        one.fail()
        for _ in range(3):
            sync(one, other)
        assert one.causes == ["tripped"]
        assert other.causes == ["fleet_opened"]

    def test_the_open_time_is_that_of_the_trip(self, two, clock):
        one, other = two
        one.fail()
        sync(one)
        clock.advance(10)
        sync(other)
        refusal = other.ask()
        assert isinstance(refusal, Refusal)
        assert refusal.retry_after == pytest.approx(20)
        assert one.circuit.next_test == other.circuit.next_test

    def test_a_follower_knows_who_opened_it_and_why(self, two):
        one, other = two
        one.fail()
        sync(one, other)
        assert "in a row" in other.circuit.rule or "consecutive" in other.circuit.rule
        assert one.sharing.status().process in other.circuit.rule
        assert "ConnectionError" in other.circuit.rule

    def test_two_that_trip_at_once_are_one_outage(self, two, breakers):
        one, other = two
        one.fail()
        other.fail()
        sync(one, other, one)
        assert (one.causes, other.causes) == (["tripped"], ["tripped"])
        assert breakers.get_by_service_name("api").generation == 1

    def test_successes_and_failures_that_do_not_trip_cost_the_store_nothing(self, flaky, clock):
        one = Process(flaky, clock, Breaker(consecutive(3)))
        one.sync()
        flaky.calls = 0
        for _ in range(10):
            one.fail()
            one.fail()
            one.finish(one.ask(), SUCCESS)
        assert flaky.calls == 0
        one.sync()
        assert flaky.calls == 1  # the look of every sync

    def test_closing_by_hand_closes_everywhere(self, two):
        one, other = two
        one.fail()
        sync(one, other)
        other.circuit.command("close")
        sync(other, one)
        assert one.state is CLOSED
        assert one.causes == ["tripped", "fleet_closed"]

    def test_an_isolation_is_a_word_to_one_process(self, two):
        one, other = two
        one.circuit.command("isolate")
        sync(one, other)
        assert other.state is CLOSED
        other.fail()
        sync(other, one)
        one.circuit.command("enable")
        assert one.state is CLOSED
        sync(one)
        assert one.state is OPEN
        sync(other)
        assert other.state is OPEN

    def test_a_half_open_time_that_runs_out_is_over_for_all(self, flaky, clock):
        policy = Breaker(consecutive(1), open_for=30.0, half_open_for=10.0)
        one, other = Process(flaky, clock, policy), Process(flaky, clock, policy)
        open_all(clock, one, other)
        demand(one)
        one.probe()
        sync(one, other)
        assert (one.state, other.state) == (HALF_OPEN, HALF_OPEN)
        clock.advance(10)
        assert other.is_refused()
        sync(other, one)
        assert (one.state, other.state) == (OPEN, OPEN)


class TestJoining:
    def test_joining_never_writes(self, store, clock, breakers):
        late = Process(store, clock)
        late.sync()
        assert store.get(BREAKER, ("api",)) == [None]
        breakers.record_failure_with_open_check("api", 1)
        before = store.get(BREAKER, ("api",))
        later = Process(store, clock)
        later.sync()
        assert later.state is OPEN
        assert store.get(BREAKER, ("api",)) == before

    def test_who_joins_while_it_is_half_open_asks_for_leave_like_the_rest(self, flaky, clock):
        one = Process(flaky, clock)
        open_all(clock, one)
        demand(one)
        probe = one.probe()
        late = Process(flaky, clock)
        sync(one, late)
        assert late.state is HALF_OPEN
        demand(late)
        assert late.is_refused()
        one.finish(probe, SUCCESS)
        sync(one, late)
        assert late.state is CLOSED

    def test_who_trips_before_the_store_has_answered_asks_for_leave_too(self, flaky, clock):
        policy = Breaker(consecutive(1), open_for=1.0)
        fleet = [Process(flaky, clock, policy) for _ in range(3)]
        for process in fleet:
            process.fail()
        clock.advance(1)
        assert all(process.is_refused() for process in fleet)
        sync(*fleet)
        demand(*fleet)
        assert sorted(process.is_refused() for process in fleet) == [False, True, True]

    def test_a_store_that_never_answers_is_not_waited_for(self, flaky, clock):
        process = Process(flaky, clock, Breaker(consecutive(1), open_for=1.0))
        process.fail()
        clock.advance(5.1)
        process.probe()

    def test_a_name_that_not_every_store_can_hold_is_refused(self, two, store):
        one, _ = two
        one.sharing.detach(one.circuit)
        with pytest.raises(PolicyError, match="at most 191"):
            one.sharing.attach(one.circuit, "x" * 192)
        one.sharing.attach(one.circuit, "a\0b")
        assert one.sync()

    def test_what_a_newer_version_says_of_a_breaker_is_no_trouble(self, two, store, clock):
        one, other = two
        one.fail()
        sync(one)
        found = store.get(BREAKER, ("api",))[0]
        said = {**from_json(found.fleet), "colour": "red"}
        store.commit([Swap(BREAKER, found, evolve(found, fleet=to_json(said)))])
        assert other.sync()
        assert other.state is OPEN

    def test_a_circuit_is_shared_once(self, two, store):
        one, _ = two
        with pytest.raises(PolicyError, match="circuit 'api' is shared already"):
            Sharing(store, background=False).attach(one.circuit)

    def test_a_breaker_that_was_deleted_begins_anew(self, two, breakers):
        one, other = two
        one.fail()
        sync(one, other)
        breakers.delete_state("api")
        sync(one, other)
        assert (one.state, other.state) == (CLOSED, CLOSED)
        other.fail()
        sync(other, one)
        assert one.state is OPEN

    @pytest.mark.parametrize("value", [0, -1, 1.5, True])
    def test_a_quorum_that_cannot_work_is_refused(self, store, value):
        with pytest.raises(PolicyError, match=r"Sharing\.quorum"):
            Sharing(store, quorum=value)

    def test_a_store_that_is_asked_too_rarely_to_be_heard_is_refused(self, store):
        with pytest.raises(PolicyError, match=r"Sharing\.poll must be at most 2\.5 seconds"):
            Sharing(store, poll=3.0)


class TestProbes:
    def test_one_probe_for_the_whole_fleet(self, two, clock):
        one, other = two
        open_all(clock, one, other)
        demand(one, other)
        probe = one.probe()
        assert one.is_refused()
        assert other.is_refused()
        sync(one, other, one, other)
        assert one.is_refused()
        assert other.is_refused()
        one.finish(probe, SUCCESS)
        sync(one, other)
        assert (one.state, other.state) == (CLOSED, CLOSED)
        assert one.causes == ["tripped", "probe_admitted", "recovered"]
        assert other.causes == ["fleet_opened", "fleet_half_opened", "fleet_closed"]

    def test_while_leave_is_fetched_calls_are_refused_and_told_when_to_come_back(self, two, clock):
        one, other = two
        open_all(clock, one, other)
        refusal = one.ask()
        assert isinstance(refusal, Refusal)
        assert refusal.retry_after == 0.1
        assert isinstance(one.circuit.look("peek"), Refusal)
        one.sync()
        assert one.circuit.look("peek") is None
        one.probe()

    def test_a_failed_probe_opens_it_everywhere_for_another_round(self, flaky, clock):
        policy = Breaker(consecutive(1), open_for=lambda rounds: 30.0 * (rounds + 1))
        one, other = Process(flaky, clock, policy), Process(flaky, clock, policy)
        open_all(clock, one, other)
        demand(one)
        one.finish(one.probe(), FAILURE, OSError("still down"))
        sync(one, other)
        assert (one.state, other.state) == (OPEN, OPEN)
        assert (one.causes[-1], other.causes[-1]) == ("relapsed", "fleet_opened")
        assert (one.circuit.rounds, other.circuit.rounds) == (1, 1)
        assert one.circuit.next_test == other.circuit.next_test == clock.monotonic() + 60
        assert isinstance(one.circuit.opened_by, OSError)

    def test_results_of_several_processes_are_one_verdict(self, flaky, clock):
        policy = Breaker(consecutive(1), open_for=30.0, successes=3, out_of=4)
        fleet = [Process(flaky, clock, policy) for _ in range(4)]
        open_all(clock, *fleet)
        demand(*fleet)
        sync(*fleet)
        probes = [process.probe() for process in fleet]
        for process, probe, evidence in zip(fleet, probes, [SUCCESS, FAILURE, SUCCESS, SUCCESS], strict=True):
            assert process.state is HALF_OPEN
            process.finish(probe, evidence)
            process.sync()
        assert fleet[3].causes[-1] == "recovered"
        sync(*fleet)
        assert {process.state for process in fleet} == {CLOSED}
        assert [process.causes[-1] for process in fleet[:3]] == ["fleet_closed"] * 3

    def test_never_more_probes_at_once_than_the_policy_says(self, flaky, clock):
        policy = Breaker(consecutive(1), open_for=30.0, successes=4, out_of=4, probes=2)
        fleet = [Process(flaky, clock, policy) for _ in range(3)]
        open_all(clock, *fleet)
        running, settled, most = [], 0, 0
        for turn in range(40):
            if fleet[0].state is CLOSED:
                break
            asked = [(process, process.ask()) for process in fleet for _ in range(2)]
            running += [(process, permit) for process, permit in asked if not isinstance(permit, Refusal)]
            most = max(most, len(running))
            assert settled + len(running) <= 4
            if turn % 3 == 2 and running:
                process, permit = running.pop(0)
                process.finish(permit, SUCCESS)
                settled += 1
            sync(*fleet, *fleet)
        assert most == 2
        assert settled == 4
        assert {process.state for process in fleet} == {CLOSED}

    def test_a_neutral_probe_returns_its_leave_for_another_one(self, two, clock):
        one, other = two
        open_all(clock, one, other)
        demand(one)
        one.finish(one.probe(), NEUTRAL)
        again = one.probe()
        one.finish(again, SUCCESS)
        sync(one, other)
        assert (one.state, other.state) == (CLOSED, CLOSED)

    def test_leave_that_is_not_used_goes_to_whoever_wants_it(self, two, clock):
        one, other = two
        open_all(clock, one, other)
        demand(one)
        demand(other)
        assert other.is_refused()
        sync(one, other)
        assert other.is_refused()
        clock.advance(0.25)
        sync(one, other)
        assert one.is_refused()
        other.finish(other.probe(), SUCCESS)
        sync(other, one)
        assert one.state is CLOSED

    def test_leave_is_held_for_longer_each_time_it_was_given_up_in_vain(self, two, clock):
        one, other = two
        open_all(clock, one, other)
        demand(one)
        waits = []
        for _ in range(4):
            waited = 0.0
            while one.circuit.look("peek") is None:
                demand(other)
                clock.advance(0.25)
                waited += 0.25
                sync(one)
                assert waited < 20
            waits.append(waited)
            one, other = other, one
            one.sync()
            assert one.circuit.look("peek") is None
        assert waits == [0.25, 0.25, 0.5, 0.5]

    def test_unused_leave_lasts_as_long_as_nobody_else_wants_it(self, two, clock):
        one, other = two
        open_all(clock, one, other)
        demand(one)
        for _ in range(20):
            clock.advance(10)
            sync(one, other)
        one.finish(one.probe(), SUCCESS)
        sync(one, other)
        assert other.state is CLOSED

    def test_leave_of_a_process_that_died_runs_out(self, two, clock):
        one, other = two
        open_all(clock, one, other)
        demand(one)
        one.probe()
        demand(other)
        clock.advance(29)
        demand(other)
        assert other.is_refused()
        clock.advance(1)
        other.sync()
        other.finish(other.probe(), SUCCESS)
        other.sync()
        assert other.state is CLOSED

    def test_a_result_that_comes_after_its_lease_changes_nothing(self, two, clock):
        one, other = two
        open_all(clock, one, other)
        demand(one)
        late = one.probe()
        clock.advance(30)
        demand(other)
        running = other.probe()
        one.sync()
        one.finish(late, SUCCESS)
        sync(one, other)
        assert (one.state, other.state) == (HALF_OPEN, HALF_OPEN)
        other.finish(running, FAILURE)
        sync(other, one)
        assert (one.state, other.state) == (OPEN, OPEN)

    def test_a_late_result_of_an_older_generation_changes_nothing(self, two, breakers, clock):
        one, other = two
        open_all(clock, one, other)
        demand(one)
        late = one.probe()
        breakers.atomic_force_open("api", ttl_minutes=1)
        one.finish(late, SUCCESS)  # it has not heard of it
        sync(one, other)
        assert (one.state, other.state) == (OPEN, OPEN)
        assert breakers.get_by_service_name("api").is_open

    def test_a_call_of_before_the_trip_does_not_settle_a_probe(self, two, clock):
        one, other = two
        old = one.ask()
        other.fail()
        sync(other, one)
        clock.advance(30)
        demand(one)
        probe = one.probe()
        one.finish(old, SUCCESS)
        sync(one, other)
        assert (one.state, other.state) == (HALF_OPEN, HALF_OPEN)
        one.finish(probe, SUCCESS)
        sync(one, other)
        assert (one.state, other.state) == (CLOSED, CLOSED)

    def test_closing_the_sharing_gives_leave_back(self, two, clock):
        one, other = two
        open_all(clock, one, other)
        demand(one)
        one.sharing.close()
        assert one.circuit.remote is None
        demand(other)
        other.probe()

    def test_a_probe_keeps_its_place_for_as_long_as_its_permit_lasts(self, two, clock):
        one, other = two
        open_all(clock, one, other)
        demand(one)
        clock.advance(9)  # unused leave is not renewed before a third of its time is over
        sync(one, other)
        probe = one.probe()
        for _ in range(29):
            clock.advance(1)
            sync(one, other)
            assert other.is_refused()
        one.finish(probe, SUCCESS)
        sync(one, other)
        assert (one.state, other.state) == (CLOSED, CLOSED)

    def test_closing_the_sharing_tells_what_the_last_probe_came_to(self, two, clock):
        one, other = two
        open_all(clock, one, other)
        demand(one)
        one.finish(one.probe(), SUCCESS)
        one.sharing.close()
        other.sync()
        assert other.state is CLOSED

    def test_closing_the_sharing_tells_of_a_trip(self, two):
        one, other = two
        sync(one, other)
        one.fail()
        one.sharing.close()
        other.sync()
        assert other.state is OPEN

    def test_leave_may_come_and_go_while_it_is_looked_at(self, clock):
        """Calls take and return it at any moment; that must not look like a fault of the store."""
        process = Process(MemoryStore(clock), clock, Breaker(consecutive(1), open_for=30.0, successes=2))
        open_all(clock, process)
        assert process.is_refused()
        assert process.is_refused()
        process.sync()
        share = process.circuit.remote
        callers: list[threading.Thread] = []

        class Watched(Token):
            """While somebody looks at it, a call in another thread takes it."""

            __slots__ = ("_until",)

            @property
            def until(self):
                if not callers:
                    callers.append(threading.Thread(target=process.probe))
                    callers[0].start()
                    callers[0].join(0.2)
                return self._until

            @until.setter
            def until(self, until):
                self._until = until

        share.parked = deque(Watched(one.id, one.of, one.granted, one.until) for one in share.parked)
        assert len(share.parked) == 2
        callers.clear()
        assert process.sync()
        (caller,) = callers
        caller.join()
        assert len(share.parked) == 1


class TestPins:
    def test_a_pin_on_open_admits_nothing_anywhere_until_it_ends(self, two, breakers, clock):
        breakers.atomic_force_open("api", "drill", ttl_minutes=10)
        sync(*two)
        clock.advance(9 * 60)
        sync(*two)
        for process in two:
            assert process.state is OPEN
            assert process.is_refused()
            assert process.causes == ["fleet_opened"]
            assert "drill" in process.circuit.rule
        sync(*two)
        assert all(process.is_refused() for process in two)
        clock.advance(60)
        sync(*two)
        demand(*two)
        assert sorted(process.is_refused() for process in two) == [False, True]

    def test_a_pin_without_end_gives_no_time_to_come_back(self, two, breakers):
        breakers.set_manual_control("api", "open")
        sync(*two)
        refusal = two[0].ask()
        assert isinstance(refusal, Refusal)
        assert refusal.retry_after is None
        breakers.atomic_reset("api")
        sync(*two)
        assert {process.state for process in two} == {CLOSED}

    def test_a_pin_on_closed_closes_and_keeps_from_tripping_until_it_ends(self, two, breakers, clock):
        one, other = two
        one.fail()
        sync(one, other)
        breakers.atomic_force_close("api", ttl_minutes=1)
        sync(one, other)
        for _ in range(5):
            one.fail()
        sync(one, other)
        assert (one.state, other.state) == (CLOSED, CLOSED)
        assert one.circuit.gate
        clock.advance(60)
        one.fail()
        assert one.state is OPEN
        sync(one, other)
        assert other.state is OPEN

    def test_a_pin_on_half_open_is_a_trial_of_one(self, two, breakers):
        one, other = two
        breakers.set_manual_control("api", "half_open")
        sync(one, other)
        assert (one.state, other.state) == (HALF_OPEN, HALF_OPEN)
        demand(one, other)
        one.finish(one.probe(), SUCCESS)
        sync(one, other)
        assert (one.state, other.state) == (CLOSED, CLOSED)
        one.fail()
        sync(one, other)
        assert other.state is OPEN

    def test_a_pin_on_half_open_leaves_running_probes_their_place(self, two, breakers, clock):
        one, other = two
        open_all(clock, one, other)
        demand(one)
        probe = one.probe()
        breakers.set_manual_control("api", "half_open")
        sync(one, other)
        demand(other)
        assert other.is_refused()
        one.finish(probe, SUCCESS)
        sync(one, other)
        assert (one.state, other.state) == (CLOSED, CLOSED)

    def test_a_pin_that_is_cleared_leaves_the_breaker_to_itself(self, two, breakers, clock):
        breakers.set_manual_control("api", "open")
        sync(*two)
        breakers.clear_manual_control("api")
        clock.advance(30)
        sync(*two)
        demand(*two)
        assert sorted(process.is_refused() for process in two) == [False, True]

    def test_nobody_closes_a_breaker_that_is_held_open(self, two, breakers):
        one, other = two
        breakers.atomic_force_open("api")
        sync(one, other)
        one.circuit.command("close")
        sync(one, other)
        assert (one.state, other.state) == (OPEN, OPEN)


class TestQuorum:
    @pytest.fixture
    def three(self, flaky, clock):
        return [Process(flaky, clock, quorum=2, vote_window=60.0) for _ in range(3)]

    def test_a_process_whose_failures_nobody_else_sees_opens_only_for_itself(self, three, breakers):
        one, *others = three
        one.fail()
        sync(*three, *three)
        assert one.state is OPEN
        assert {process.state for process in others} == {CLOSED}
        assert breakers.get_by_service_name("api").is_closed
        assert one.sharing.status().alone == ("api",)

    def test_enough_votes_open_it_for_all(self, three):
        one, other, third = three
        one.fail()
        sync(*three)
        other.fail()
        sync(*three)
        assert third.state is OPEN
        sync(*three)
        assert one.sharing.status().alone == ()
        assert [process.causes for process in three] == [["tripped"], ["tripped"], ["fleet_opened"]]

    def test_one_process_votes_once(self, three, clock):
        one, other, _ = three
        one.fail()
        one.sync()
        clock.advance(30)
        one.finish(one.probe(), FAILURE)
        sync(*three)
        assert other.state is CLOSED

    def test_votes_that_are_far_apart_do_not_add_up(self, three, clock):
        one, other, third = three
        one.fail()
        sync(*three)
        clock.advance(60.1)
        other.fail()
        sync(*three)
        assert third.state is CLOSED

    def test_alone_it_probes_and_recovers_alone_and_takes_its_vote_back(self, three, clock):
        one, other, third = three
        one.fail()
        sync(*three)
        clock.advance(30)
        sync(*three)
        one.finish(one.probe(), SUCCESS)
        assert one.state is CLOSED
        sync(*three)
        assert one.causes == ["tripped", "probe_admitted", "recovered"]
        other.fail()
        sync(*three)
        assert third.state is CLOSED

    def test_a_trip_by_hand_needs_no_second_opinion(self, three):
        one, other, _ = three
        one.circuit.follow(lambda now: one.circuit.trip(now))
        sync(*three)
        assert other.state is OPEN


class TestStoreAway:
    def test_calls_go_on_with_local_decisions(self, two, flaky, clock):
        one, other = two
        sync(one, other)
        flaky.away = True
        one.fail()
        sync(one, other)
        assert (one.state, other.state) == (OPEN, CLOSED)
        clock.advance(30)
        one.finish(one.probe(), FAILURE)
        clock.advance(30)
        one.finish(one.probe(), SUCCESS)
        assert one.state is CLOSED

    def test_it_is_visible_and_told_once(self, two, flaky, caplog):
        one, _ = two
        seen = []
        one.hub.register(lambda event: seen.append(event) if isinstance(event, SharingChanged) else None)
        assert not one.sharing.is_connected
        one.sync()
        assert one.sharing.is_connected
        flaky.away = True
        for _ in range(5):
            assert one.sync() is False
        assert not one.sharing.is_connected
        assert one.sharing.status().error == "StoreUnavailable: the store is away"
        flaky.away = False
        one.sync()
        one.sync()
        assert one.sharing.is_connected
        assert one.sharing.status().error is None
        assert [event.is_connected for event in seen] == [False, True]
        assert [record.levelname for record in caplog.records if "away" in record.message] == ["WARNING"]

    def test_its_reason_is_logged_as_it_is_but_for_secrets(self, two, flaky, caplog):
        one, _ = two
        one.sync()
        flaky.store = None
        flaky.__dict__["url"] = "x://"
        flaky.__dict__["get"] = lambda *_: (_ for _ in ()).throw(OSError("100%d of password=hunter2 at x"))
        one.sync()
        (line,) = [record.getMessage() for record in caplog.records if record.name == "holdfast.breakers"]
        assert "100%d of password=*** at x" in line
        assert "hunter2" not in (one.sharing.status().error or "")

    def test_a_trip_of_meanwhile_is_told_when_the_store_is_back(self, two, flaky, clock):
        one, other = two
        sync(one, other)
        flaky.away = True
        one.fail()
        sync(one, other)
        clock.advance(10)
        flaky.away = False
        sync(one, other)
        assert other.state is OPEN
        assert other.circuit.next_test == one.circuit.next_test

    def test_a_recovery_of_meanwhile_is_told_when_the_store_is_back(self, two, flaky, clock):
        one, other = two
        open_all(clock, one, other)
        flaky.away = True
        sync(one, other)
        one.finish(one.probe(), SUCCESS)
        assert (one.state, other.state) == (CLOSED, OPEN)
        flaky.away = False
        sync(one, other)
        assert (one.state, other.state) == (CLOSED, CLOSED)

    def test_an_outage_that_came_and_went_is_nobodys_business(self, two, flaky, clock, breakers):
        one, other = two
        sync(one, other)
        flaky.away = True
        one.fail()
        clock.advance(30)
        one.finish(one.probe(), SUCCESS)
        flaky.away = False
        sync(one, other)
        assert (one.state, other.state) == (CLOSED, CLOSED)
        assert breakers.get_by_service_name("api") is None

    def test_what_the_others_decided_meanwhile_counts_more(self, two, store, clock):
        _, other = two
        flaky = Flaky(store)
        one = Process(flaky, clock)
        sync(one, other)
        flaky.away = True
        one.fail()
        one.sync()
        other.fail()
        sync(other)
        clock.advance(30)
        demand(other)
        other.finish(other.probe(), SUCCESS)
        sync(other)
        flaky.away = False
        sync(one, other)
        assert (one.state, other.state) == (CLOSED, CLOSED)

    def test_a_probe_whose_result_could_not_be_told_decides_here(self, two, flaky, clock):
        one, other = two
        open_all(clock, one, other)
        demand(one)
        probe = one.probe()
        flaky.away = True
        one.finish(probe, SUCCESS)
        assert one.state is HALF_OPEN
        one.sync()
        assert one.state is CLOSED
        flaky.away = False
        sync(one, other)
        assert (one.state, other.state) == (CLOSED, CLOSED)
        assert one.causes == ["tripped", "probe_admitted", "recovered"]

    def test_a_store_that_is_silent_for_long_is_away(self, two, clock):
        one, other = two
        open_all(clock, one, other)
        assert one.is_refused()
        clock.advance(5.1)
        one.probe()

    def test_back_again_the_fleet_has_its_limit_again(self, two, flaky, clock):
        one, other = two
        open_all(clock, one, other)
        flaky.away = True
        sync(one, other)
        one.probe()
        other.probe()  # each alone
        flaky.away = False
        sync(one, other)
        assert (one.state, other.state) == (OPEN, OPEN)
        demand(one, other)
        assert sorted(process.is_refused() for process in (one, other)) == [False, True]

    def test_nothing_is_asked_of_the_store_on_a_call(self, two, flaky, clock):
        one, other = two
        open_all(clock, one, other)
        demand(one)
        flaky.calls = 0
        one.finish(one.probe(), FAILURE)
        for _ in range(5):
            assert one.is_refused()
        assert flaky.calls == 0


def test_detached_it_goes_on_alone(two, clock):
    one, other = two
    one.fail()
    sync(one, other)
    other.sharing.detach(other.circuit)
    clock.advance(30)
    other.finish(other.probe(), SUCCESS)
    sync(one, other)
    assert (one.state, other.state) == (OPEN, CLOSED)


def test_the_status_says_what_is_shared(two, clock):
    one, _ = two
    one.sync()
    status = one.sharing.status()
    assert (status.shared, status.is_connected, status.since) == (("api",), True, clock.wall())
    clock.advance(timedelta(seconds=1).total_seconds())
    one.sync()
    assert one.sharing.status() == status
