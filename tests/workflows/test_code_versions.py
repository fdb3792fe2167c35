"""Code that changes while workflows run: which code a run is for, who can take it, and what nobody can."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

from holdfast.errors import PolicyError, WorkflowDefinitionError
from holdfast.machine.workflow import WorkflowStatus
from holdfast.store.port import Store
from holdfast.testing.clock import ManualClock
from holdfast.workflows.functions import task, workflow
from holdfast.workflows.mentions import mentioned
from holdfast.workflows.patches import patched
from holdfast.workflows.records import SERVING
from holdfast.workflows.result import TaskResult
from holdfast.workflows.workflows import Workflows
from tests.workflows.journal import Journal, stage, start

S = WorkflowStatus


@task
def hello(name: str) -> str:
    return f"hello {name}"


@task
def bye(name: str) -> str:
    return f"bye {name}"


def _twice(name: str) -> Any:
    return [bye(name), bye(name)]


@workflow
def greeting(name: str) -> Any:
    return hello(name)


@workflow
def parting(name: str) -> Any:
    if name == "ann":
        return [greeting(name), _twice(name)]
    return greeting(name)


def test_the_code_version_of_a_run_is_what_was_named_or_a_fingerprint(store: Store, clock: ManualClock) -> None:
    plain, named = Workflows(store, clock=clock), Workflows(store, clock=clock, code_version="2026.11")
    ids = [plain.start(greeting, "ann").id, plain.start(greeting, "bob").id, named.start(greeting, "cy").id]
    versions = [plain.workflow(id).code_version for id in ids]
    assert (versions[0], versions[2]) == (versions[1], "2026.11")
    assert len(versions[0] or "") == 12
    own = workflow(name="greeting", version="7")(greeting.function)
    assert named.workflow(named.start(own, "di").id).code_version == "7"


def test_a_worker_that_names_versions_takes_only_runs_of_these(store: Store, clock: ManualClock) -> None:
    old, new = (Workflows(store, clock=clock, code_version=one) for one in ("1.0", "2.0"))
    runs = [one.start(greeting, "ann") for one in (old, new)]
    worker = new.worker(versions=["2.0", "2.1"])
    worker.run_once()
    worker.close()
    assert [run.status for run in runs] == [S.RUNNING, S.SUCCEEDED]
    worker = old.worker()
    worker.run_once()
    worker.close()
    assert runs[0].status is S.SUCCEEDED


def test_a_run_is_restarted_or_retried_for_workers_with_new_code(store: Store, clock: ManualClock) -> None:
    flows = Workflows(store, clock=clock, code_version="1.0")
    journal = Journal(flows)
    journal.answers["a"] = [TaskResult.terminal("a bug")]
    run = start(flows, stage("a"))
    old, new = flows.worker(versions=["1.0"]), flows.worker(versions=["2.0"])
    old.run_once()
    assert run.status is S.TERMINAL
    flows.retry(run.id, code_version="2.0")
    old.run_once()
    assert run.status is S.RUNNING
    new.run_once()
    assert (run.status, flows.workflow(run.id).code_version) == (S.SUCCEEDED, "2.0")
    flows.restart(run.id, "a", code_version="1.0")
    old.run_once()
    assert (run.status, journal.ran) == (S.SUCCEEDED, ["a"] * 3)
    for worker in (old, new):
        worker.close()


def test_work_that_no_worker_can_take_is_named_with_the_reason(store: Store, clock: ManualClock) -> None:
    there, here = Workflows(store, clock=clock, code_version="1.0"), Workflows(store, clock=clock)
    first, second = there.start(greeting, "ann"), there.start(workflow(name="other")(lambda: bye("bob")))
    assert {one.reason for one in here.stranded()} == {"no worker is there"}
    here.register(bye)
    worker = here.worker()
    worker._shift.look()
    (stuck,) = here.stranded()
    assert (stuck.workflow_id, stuck.name, stuck.stage, stuck.task) == (first.id, "greeting", "hello", "hello")
    assert (stuck.reason, stuck.code_version, stuck.since) == ("no worker knows task 'hello'", "1.0", clock.wall())
    assert here.stranded(second.id) == []
    here.register(hello)
    clock.advance(1)
    worker._shift.look()
    assert here.stranded() == []
    worker._shift.drain()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"queues": ["slow"]}, "no worker takes queue 'default'"),
        ({"versions": ["2.0"]}, "no worker serves code version '1.0'"),
        ({}, None),
    ],
)
def test_workers_say_what_they_take(
    store: Store, clock: ManualClock, options: dict[str, Any], reason: str | None
) -> None:
    flows = Workflows(store, clock=clock, code_version="1.0")
    flows.start(greeting, "ann")
    flows.start(greeting, "bob")
    worker = flows.worker(**options, threads=1)
    worker._shift.serving.declare(flows.tasks)
    assert [one.reason for one in flows.stranded()] == ([] if reason is None else [reason] * 2)
    worker.close()


def test_several_workers_none_of_which_has_all_that_is_needed_are_not_enough(store: Store, clock: ManualClock) -> None:
    flows = Workflows(store, clock=clock)
    flows.start(greeting, "ann")
    left, right = flows.worker(queues=["slow"]), flows.worker()
    left._shift.serving.declare(["hello"])
    right._shift.serving.declare(["bye"])
    (stuck,) = flows.stranded()
    assert "takes queue 'default' and knows task 'hello'" in stuck.reason
    for worker in (left, right):
        worker.close()


def test_a_worker_that_stops_says_so_and_one_that_dies_is_forgotten(store: Store, clock: ManualClock) -> None:
    flows = Workflows(store, clock=clock)
    flows.register(hello)
    stops, dies = flows.worker(), flows.worker()
    for worker in (stops, dies):
        worker._shift.look()
        worker._shift.look()
    assert len(store.page(SERVING)) == 2
    stops._shift.drain()
    assert len(store.page(SERVING)) == 1
    flows.start(greeting, "ann")
    assert flows.stranded() == []
    clock.advance(181)
    assert [one.reason for one in flows.stranded()] == ["no worker is there"]
    last = flows.worker()
    last._shift.look()
    assert len(store.page(SERVING)) == 1
    last._shift.drain()
    dies.close()


def test_an_idle_worker_renews_its_word_seldom(store: Store, clock: ManualClock) -> None:
    flows = Workflows(store, clock=clock)
    worker = flows.worker()
    versions = []
    for _ in range(10):
        worker._shift.look()
        versions.append(store.page(SERVING)[0].version)
        clock.advance(31)
    assert versions == [1, 1, 2, 2, 3, 3, 4, 4, 5, 5]
    worker._shift.drain()


def test_a_patch_holds_for_runs_that_were_started_with_it(store: Store, clock: ManualClock) -> None:
    @task
    def price(number: int) -> float:
        return number * (1.2 if patched("tax") else 1.0)

    @workflow(name="sale")
    def before(number: int) -> Any:
        return price(number)

    @workflow(name="sale")
    def since(number: int) -> Any:
        assert patched("tax")
        return price(number)

    flows = Workflows(store, clock=clock)
    runs = [flows.start(one, 10) for one in (before, since)]
    worker = flows.worker()
    worker.run_once()
    worker.close()
    assert [run.result(0) for run in runs] == [10.0, 12.0]
    assert price(10) == 12.0  # outside of any workflow it is new code
    with pytest.raises(WorkflowDefinitionError, match="empty"):
        patched("")


def test_adding_a_workflow_registers_the_tasks_that_it_names(store: Store, clock: ManualClock) -> None:
    there, here = Workflows(store, clock=clock), Workflows(store, clock=clock)
    run = there.start(parting, "ann")
    here.add(parting)
    assert {"hello", "bye"} <= set(here.tasks)
    worker = here.worker()
    worker.run_once()
    worker.close()
    assert run.result(0) == ["hello ann", ["bye ann", "bye ann"]]


def test_tasks_are_found_in_modules_closures_and_comprehensions() -> None:
    @task
    def inner() -> int:
        return 1

    tasks = ModuleType("tasks")
    vars(tasks).update(far=task(name="far")(lambda: 2), other=task(name="other")(lambda: 3))

    @workflow
    def body(numbers: list[int]) -> Any:
        return [[inner() for _ in numbers], (lambda: tasks.far())()]

    assert {one.name for one in mentioned(body)} == {"far", "inner"}


def test_a_name_that_is_taken_adds_nothing(store: Store, clock: ManualClock) -> None:
    flows = Workflows(store, clock=clock)
    flows.add(greeting)
    with pytest.raises(WorkflowDefinitionError, match="two workflows 'greeting'"):
        flows.add(parting, "greeting")
    assert "bye" not in flows.tasks


def test_a_version_of_code_is_a_text(store: Store, flows: Workflows) -> None:
    with pytest.raises(PolicyError, match="code_version must be a text, got 2"):
        Workflows(store, code_version=2)  # type: ignore[arg-type]
    with pytest.raises(PolicyError, match="workflow 'greeting': version must be a text, got 2"):
        workflow(name="greeting", version=2)(greeting.function)  # type: ignore[call-overload]
    run = flows.start(greeting, "ann")
    worker = flows.worker()
    worker.run_once()
    worker.close()
    with pytest.raises(PolicyError, match="code_version must be a text, got 2"):
        flows.restart(run.id, "hello", code_version=2)  # type: ignore[arg-type]
