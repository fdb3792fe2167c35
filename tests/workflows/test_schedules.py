"""Schedules: each tick is fired once, by whichever worker, and what is missed or overlaps is decided as was asked."""

from __future__ import annotations

import sys
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from holdfast.errors import ConfigurationError, TaskError, WorkflowDefinitionError, WorkflowNotFoundError
from holdfast.machine.workflow import WorkflowStatus as S
from holdfast.store.codec import instant, micros
from holdfast.store.port import Store, Swap
from holdfast.store.record import evolve
from holdfast.testing.clock import ManualClock
from holdfast.workflows.cron import Cron
from holdfast.workflows.functions import task, workflow
from holdfast.workflows.records import KINDS, SCHEDULE, WORKFLOW
from holdfast.workflows.waiting import wait_signal
from holdfast.workflows.worker import WorkflowWorker
from holdfast.workflows.workflows import Workflows
from tests.stores import fresh_store
from tests.workflows.gates import PATIENCE_S, until


@task
def write(day: str) -> str:
    return f"report of {day}"


@workflow
def report(day: str) -> Any:
    return write(day)


@workflow
def slow(day: str = "today") -> Any:
    return wait_signal("go")


def to_next_tick(clock: ManualClock, flows: Workflows, name: str) -> None:
    tick = flows.schedules.get(name).next_tick
    assert tick is not None
    clock.advance((tick - clock.wall()).total_seconds())


def words(flows: Workflows, name: str) -> list[str]:
    return [entry.type for entry in flows.schedules.log(name)]


def test_a_schedule_starts_its_workflow_at_each_tick(
    flows: Workflows, worker: WorkflowWorker, clock: ManualClock
) -> None:
    made = flows.schedule("nightly", report, {"day": "monday"}, cron="0 3 * * *")
    assert made.next_tick is not None
    assert (made.next_tick.hour, made.next_tick.minute) == (3, 0)
    worker.run_once()
    assert flows.counts() == {}
    for number in (1, 2):
        to_next_tick(clock, flows, "nightly")
        worker.run_once()
        worker.run_once()
        assert flows.counts() == {S.SUCCEEDED: number}
    (last, _) = flows.find(name="report")
    assert flows.get(last.id).result(0) == "report of monday"
    trigger = flows.workflow(last.id).trigger
    assert (trigger.type, trigger.parameters["schedule"]) == ("cron", "nightly")
    assert flows.schedules.get("nightly").last_run == last.id
    assert words(flows, "nightly") == ["schedule_made", "tick_fired", "tick_fired"]


def test_many_processes_fire_a_tick_once(flows: Workflows, store: Store, clock: ManualClock) -> None:
    flows.schedule("often", report, ["x"], cron="* * * * *", overlap="queue")
    others = []
    for _ in range(4):
        others.append(Workflows(store, clock=clock))
        others[-1].add(report)
    for number in range(1, 6):
        to_next_tick(clock, flows, "often")
        barrier = threading.Barrier(4)

        def go(other: Workflows, barrier: threading.Barrier = barrier) -> None:
            barrier.wait()
            other.schedules.ticking.fire_due()

        threads = [threading.Thread(target=go, args=(other,)) for other in others]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sum(store.tally(WORKFLOW, ("status",)).values()) == number


def test_a_worker_that_runs_fires_by_itself(tmp_path: Path) -> None:
    clock = ManualClock(auto=False)
    with fresh_store("sqlite", tmp_path, KINDS, clock) as store:
        flows = Workflows(store, clock=clock)
        worker = flows.worker().start()
        try:
            flows.schedule("often", report, ["x"], cron="* * * * *")  # it is woken for that
            for number in (1, 2):
                clock.advance(60)
                until(lambda number=number: flows.counts().get(S.SUCCEEDED, 0) == number)
        finally:
            clock.advance(60)
            assert worker.stop(PATIENCE_S)


def test_with_skip_a_tick_starts_nothing_while_the_last_run_has_not_ended(
    flows: Workflows, worker: WorkflowWorker, clock: ManualClock
) -> None:
    flows.schedule("s", slow, cron="0 * * * *")
    for _ in range(3):
        to_next_tick(clock, flows, "s")
        worker.run_once()
    (run,) = flows.find()
    assert words(flows, "s") == ["schedule_made", "tick_fired", "tick_skipped", "tick_skipped"]
    assert flows.schedules.log("s")[-1].facts["run"] == run.id
    flows.signal(run.id, "go")
    to_next_tick(clock, flows, "s")
    worker.run_once()
    assert len(flows.find()) == 2


def test_with_queue_runs_wait_for_each_other(flows: Workflows, worker: WorkflowWorker, clock: ManualClock) -> None:
    flows.schedule("s", slow, cron="0 * * * *", overlap="queue")
    for _ in range(3):
        to_next_tick(clock, flows, "s")
        worker.run_once()
    assert flows.counts() == {S.RUNNING: 1, S.BUFFERED: 2}
    oldest = flows.find()[-1]
    flows.signal(oldest.id, "go")
    worker.run_once()
    assert [one.status for one in flows.find()] == [S.BUFFERED, S.RUNNING, S.SUCCEEDED]


def test_with_cancel_previous_the_last_run_makes_way(
    flows: Workflows, worker: WorkflowWorker, clock: ManualClock
) -> None:
    flows.schedule("s", slow, cron="0 * * * *", overlap="cancel_previous")
    for _ in range(3):
        to_next_tick(clock, flows, "s")
        worker.run_once()
    assert [one.status for one in flows.find()] == [S.RUNNING, S.CANCELED, S.CANCELED]


@pytest.mark.parametrize(("catch_up", "made"), [(0, 0), (1, 1), (3, 3), (100, 24)])
def test_after_a_downtime_so_many_missed_ticks_are_made_up_for(
    flows: Workflows, worker: WorkflowWorker, clock: ManualClock, catch_up: int, made: int
) -> None:
    flows.schedule("s", report, ["x"], cron="0 * * * *", catch_up=catch_up, overlap="queue")
    to_next_tick(clock, flows, "s")
    clock.advance(23.5 * 3600)  # 24 ticks, the last of them half an hour ago
    worker.run_once()
    ticks = [flows.workflow(one.id).trigger.parameters["tick"] for one in flows.find()]
    assert len(ticks) == made
    assert ticks == sorted(ticks, reverse=True)
    missed = [entry.facts["number"] for entry in flows.schedules.log("s") if entry.type == "ticks_missed"]
    assert sum(missed) == 24 - made
    after = flows.schedules.get("s")
    assert after.next_tick is not None
    assert clock.wall() < after.next_tick <= clock.wall() + timedelta(hours=1)


def test_a_tick_that_is_a_little_late_counts_as_in_time(
    flows: Workflows, worker: WorkflowWorker, clock: ManualClock
) -> None:
    flows.schedule("s", report, ["x"], cron="0 * * * *", catch_up=0)
    to_next_tick(clock, flows, "s")
    clock.advance(50)
    worker.run_once()
    assert len(flows.find()) == 1


def test_a_downtime_of_years_costs_no_more_than_one_of_days() -> None:
    cron = Cron("* * * * *")
    now = micros(datetime(2030, 1, 1, tzinfo=UTC))
    found = cron.between(0, now, 5)
    assert [instant(at).minute for at in found] == [56, 57, 58, 59, 0]


def test_a_paused_schedule_does_not_tick_and_makes_up_for_nothing(
    flows: Workflows, worker: WorkflowWorker, clock: ManualClock
) -> None:
    flows.schedule("s", report, ["x"], cron="0 * * * *", catch_up=5)
    assert flows.schedules.pause("s", by="ann").next_tick is None
    clock.advance(86400)
    worker.run_once()
    assert flows.find() == []
    assert flows.schedules.resume("s").next_tick is not None
    worker.run_once()
    assert flows.find() == []
    to_next_tick(clock, flows, "s")
    worker.run_once()
    assert len(flows.find()) == 1
    assert words(flows, "s")[:3] == ["schedule_made", "schedule_paused", "schedule_resumed"]


def test_to_say_the_same_again_changes_nothing_and_something_else_changes_it(
    flows: Workflows, clock: ManualClock
) -> None:
    def say(**more: Any) -> Any:
        return flows.schedule("s", report, {"day": "x"}, **{"cron": "0 * * * *", **more})

    first = say()
    flows.schedules.pause("s")
    assert say().paused
    clock.advance(7200)
    assert say(paused=False).paused is False
    changed = say(cron="30 3 * * *", timezone="Europe/Berlin")
    assert changed.created_at == first.created_at
    assert changed.next_tick is not None
    assert changed.next_tick.astimezone(ZoneInfo("Europe/Berlin")).strftime("%H:%M") == "03:30"
    assert words(flows, "s") == ["schedule_made", "schedule_paused", "schedule_changed", "schedule_changed"]


def test_a_schedule_said_again_after_a_downtime_still_makes_up_for_it(
    flows: Workflows, worker: WorkflowWorker, clock: ManualClock
) -> None:
    flows.schedule("s", report, ["x"], cron="0 3 * * *")
    clock.advance(3 * 86400)
    flows.schedule("s", report, ["x"], cron="0 3 * * *")  # the program has begun again
    worker.run_once()
    assert len(flows.find()) == 1


def test_a_deleted_schedule_is_gone_and_its_log_goes_on_with_the_next_of_its_name(flows: Workflows) -> None:
    flows.schedule("s", report, ["x"], cron="@daily")
    flows.schedules.delete("s", by="ann")
    assert flows.schedules.all() == []
    flows.schedule("s", report, ["x"], cron="@daily")
    assert words(flows, "s") == ["schedule_made", "schedule_deleted", "schedule_made"]
    for act in (flows.schedules.delete, flows.schedules.get, flows.schedules.pause, flows.schedules.run):
        with pytest.raises(WorkflowNotFoundError, match="'nothing'"):
            act("nothing")


def test_a_schedule_can_be_run_now(flows: Workflows, worker: WorkflowWorker, clock: ManualClock) -> None:
    before = flows.schedule("s", slow, cron="@daily", paused=True)
    id = flows.schedules.run("s", by="ann")
    worker.run_once()
    assert flows.get(id).status is S.RUNNING
    after = flows.schedules.get("s")
    assert (after.next_tick, after.paused, after.last_run) == (before.next_tick, True, id)
    with pytest.raises(TaskError, match=f"{id} is RUNNING, and overlap is skip"):
        flows.schedules.run("s")
    flows.signal(id, "go")
    second = flows.schedules.run("s")
    flows.cancel(second)
    flows.schedules.delete("s")
    flows.schedule("s", slow, cron="@daily")
    assert flows.schedules.run("s") not in (id, second)


def test_a_tick_that_cannot_be_told_on_this_host_is_left_to_others(
    flows: Workflows, store: Store, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    flows.schedule("s", report, ["x"], cron="@hourly")
    to_next_tick(clock, flows, "s")
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "cronsim", None)  # a host where holdfast[cron] is not installed
        assert flows.schedules.ticking.fire_due() == 0
        assert flows.schedules.ticking.next_due() is None
    elsewhere = Workflows(store, clock=clock)
    elsewhere.add(report)
    assert elsewhere.schedules.ticking.fire_due() == 1
    assert words(flows, "s") == ["schedule_made", "tick_fired"]


def test_a_tick_that_no_host_can_tell_stays_due_and_the_log_says_why(
    flows: Workflows, store: Store, clock: ManualClock
) -> None:
    flows.schedule("s", report, ["x"], cron="@hourly")
    flows.schedule("t", report, ["x"], cron="@hourly")
    (record,) = store.get(SCHEDULE, ["s"])
    assert record is not None
    store.commit([Swap(SCHEDULE, record, evolve(record, timezone="Mars/Olympus"))])
    to_next_tick(clock, flows, "t")
    due = flows.schedules.get("t").next_tick
    assert flows.schedules.ticking.fire_due() == 1  # it holds up nobody else
    assert flows.schedules.lately("s", 1)[0].type == "schedule_made"
    clock.advance(61)
    flows.schedules.ticking.fire_due()
    assert flows.schedules.lately("s", 1)[0].type == "tick_failed"
    assert flows.schedules.get("s").next_tick == due
    flows.schedule("s", report, ["x"], cron="@hourly")  # somebody has seen to it
    assert flows.schedules.ticking.fire_due() == 0


def test_a_workflow_that_cannot_be_started_loses_its_tick_and_says_so(
    flows: Workflows, store: Store, clock: ManualClock
) -> None:
    flows.schedule("s", report, {"day": "x"}, cron="@hourly")

    @workflow(name="report")
    def changed(other: str) -> Any:
        return write(other)

    later = Workflows(store, clock=clock)  # the program of another day
    later.add(changed)
    to_next_tick(clock, flows, "s")
    assert later.schedules.ticking.fire_due() == 1
    assert later.schedules.ticking.fire_due() == 0
    last = flows.schedules.log("s")[-1]
    assert last.type == "tick_failed"
    assert "other" in last.facts["error"]


def test_a_schedule_whose_workflow_leaves_the_program_loses_its_tick_and_holds_up_no_other(
    flows: Workflows, worker: WorkflowWorker, clock: ManualClock
) -> None:
    closed: list[bool] = []

    @workflow
    def leaves() -> Any:
        return sys.exit("closed") if closed else write("x")

    flows.schedule("a", leaves, cron="@hourly")
    flows.schedule("b", report, ["x"], cron="@hourly")
    closed.append(True)
    to_next_tick(clock, flows, "b")
    worker.run_once()
    assert (words(flows, "a")[-1], words(flows, "b")[-1]) == ("tick_failed", "tick_fired")
    assert flows.schedules.log("a")[-1].facts["error"] == "SystemExit: closed"


def test_nobody_fires_what_he_does_not_know(flows: Workflows, store: Store, clock: ManualClock) -> None:
    flows.schedule("s", report, ["x"], cron="@hourly")
    to_next_tick(clock, flows, "s")
    stranger = Workflows(store, clock=clock)
    assert stranger.schedules.ticking.next_due() is None
    assert stranger.schedules.ticking.fire_due() == 0
    stranger.add(slow)
    assert stranger.schedules.ticking.next_due() is None
    assert flows.schedules.ticking.fire_due() == 1


def test_the_next_ticks_are_told(flows: Workflows) -> None:
    flows.schedule("s", report, ["x"], cron="0 3 * * 1", timezone="Europe/Berlin")
    found = flows.schedules.next("s", 3)
    assert len(found) == 3
    assert {at.astimezone(ZoneInfo("Europe/Berlin")).strftime("%a %H:%M") for at in found} == {"Mon 03:00"}


@pytest.mark.parametrize(
    ("options", "error", "story"),
    [
        ({"cron": "61 * * * *"}, ConfigurationError, "cron '61 \\* \\* \\* \\*' is wrong: bad minute"),
        ({"cron": "daily"}, ConfigurationError, "wrong number of fields"),
        ({"cron": 5}, ConfigurationError, "a text"),
        ({"cron": "0 0 30 2 *"}, ConfigurationError, "day-of-month"),
        ({"timezone": "Europe/Berlni"}, ConfigurationError, "no time zone 'Europe/Berlni'"),
        ({"timezone": "../etc/passwd"}, ConfigurationError, "no time zone"),
        ({"timezone": ""}, ConfigurationError, "no time zone"),
        ({"overlap": "both"}, ConfigurationError, "overlap must be one of skip, queue, cancel_previous"),
        ({"catch_up": -1}, ConfigurationError, "catch_up must be"),
        ({"catch_up": True}, ConfigurationError, "catch_up must be"),
        ({"workflow": "nothing"}, WorkflowDefinitionError, "no workflow 'nothing' is known here"),
        ({"workflow": write}, WorkflowDefinitionError, "no workflow"),
        ({"input": {"month": 1}}, WorkflowDefinitionError, "missing a required argument: 'day'"),
        ({"input": "x"}, ConfigurationError, "input must be a dict"),
        ({"input": {"day": object()}}, TypeError, "day"),
        ({"name": ""}, ConfigurationError, "name is a text"),
    ],
)
def test_what_cannot_be_scheduled_is_refused_at_once(
    flows: Workflows, store: Store, options: dict[str, Any], error: type[Exception], story: str
) -> None:
    given = {"name": "s", "workflow": report, "input": ["x"], "cron": "@daily", **options}
    with pytest.raises(error, match=story):
        flows.schedule(given.pop("name"), given.pop("workflow"), given.pop("input"), **given)
    assert store.page(SCHEDULE) == []


BERLIN = ZoneInfo("Europe/Berlin")


def ticks(cron: str, start: datetime, number: int) -> list[str]:
    clock = Cron(cron, "Europe/Berlin")
    found, at = [], micros(start)
    for _ in range(number):  # each from the one before, as a schedule does
        after = clock.after(at)
        assert after is not None
        at = after
        found.append(instant(at).astimezone(BERLIN).strftime("%d %H:%M %z"))
    return found


def test_a_time_that_clocks_leave_out_comes_right_after() -> None:
    found = ticks("30 2 * * *", datetime(2026, 3, 28, tzinfo=BERLIN), 3)
    assert found == ["28 02:30 +0100", "29 03:00 +0200", "30 02:30 +0200"]


def test_a_time_that_comes_twice_ticks_once() -> None:
    found = ticks("30 2 * * *", datetime(2026, 10, 24, tzinfo=BERLIN), 3)
    assert found == ["24 02:30 +0200", "25 02:30 +0200", "26 02:30 +0100"]


def test_what_has_a_star_for_its_minutes_goes_by_the_clock_on_the_wall() -> None:
    spring, autumn = datetime(2026, 3, 28, 12, tzinfo=BERLIN), datetime(2026, 10, 24, 12, tzinfo=BERLIN)
    assert ticks("*/30 2 * * *", spring, 2) == ["30 02:00 +0200", "30 02:30 +0200"]
    both = ["25 02:00 +0200", "25 02:30 +0200", "25 02:00 +0100", "25 02:30 +0100", "26 02:00 +0100"]
    assert ticks("*/30 2 * * *", autumn, 5) == both
    assert ticks("0,30 2 * * *", spring, 2) == ["29 03:00 +0200", "30 02:00 +0200"]
    assert ticks("0,30 2 * * *", autumn, 3) == ["25 02:00 +0200", "25 02:30 +0200", "26 02:00 +0100"]


def test_what_ticks_every_hour_goes_on_ticking_while_clocks_are_changed() -> None:
    found = ticks("0 * * * *", datetime(2026, 10, 25, 1, 30, tzinfo=BERLIN), 3)
    assert found == ["25 02:00 +0200", "25 02:00 +0100", "25 03:00 +0100"]
    found = ticks("0 * * * *", datetime(2026, 3, 29, 0, 30, tzinfo=BERLIN), 3)
    assert found == ["29 01:00 +0100", "29 03:00 +0200", "29 04:00 +0200"]


def test_ticks_are_the_same_from_both_ends_while_clocks_are_changed() -> None:
    for start in (datetime(2026, 3, 27, tzinfo=BERLIN), datetime(2026, 10, 23, tzinfo=BERLIN)):
        cron = Cron("30 2 * * *", "Europe/Berlin")
        first, last = micros(start), micros(start + timedelta(days=5))
        whole = cron.between(first, last, 100)
        assert len(whole) == 5
        assert [cron.between(first, last, most) for most in (1, 2, 3, 4)] == [whole[-most:] for most in (1, 2, 3, 4)]
