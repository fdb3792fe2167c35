"""Every field of the configurations is read: change it, and the engine does something else."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import fields
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from holdfast.app import Holdfast
from holdfast.backends.memory import MemoryStore
from holdfast.errors import ConcurrencyError, ConfigurationError, HoldfastError, TaskError, TransientError
from holdfast.machine.workflow import WorkflowStatus
from holdfast.testing.clock import ManualClock
from holdfast.workflows.config import BackoffConfig, EngineConfig, HandlerConfig
from holdfast.workflows.configs import Configs
from holdfast.workflows.functions import task, workflow
from holdfast.workflows.messages import StartWorkflow
from holdfast.workflows.records import ITEM, WORKER
from holdfast.workflows.resilience import BulkheadConfig, ResilienceConfig
from holdfast.workflows.result import TaskResult
from holdfast.workflows.store import WorkflowStore
from holdfast.workflows.workflows import Workflows
from tests.workflows.gates import PATIENCE_S
from tests.workflows.journal import Journal, stage, start
from tests.workflows.test_recovery import lose_items, waiting_for_nothing
from tests.workflows.test_workflow_store import Contended

S = WorkflowStatus


class Engine:
    """An engine in memory with one configuration."""

    def __init__(self, *configs: Any) -> None:
        self.clock = ManualClock()
        self.store = MemoryStore(clock=self.clock)
        self.flows = Workflows(self.store, clock=self.clock, config=configs)
        self.journal = Journal(self.flows)


def waits(config: HandlerConfig) -> list[float]:
    """How long somebody waits who is always too late."""
    engine = Engine(config)
    flows = Workflows(Contended(engine.store), clock=engine.clock, config=config)  # type: ignore[arg-type]  # but for commits
    run = start(engine.flows, stage("a"))
    with pytest.raises(ConcurrencyError):
        flows.pause(run.id)
    return [round(one, 3) for one in engine.clock.slept]


def in_place(**changed: Any) -> Any:
    found = waits(HandlerConfig(**{"error_handling_max_retries": 0, "concurrency_jitter": 0.0, **changed}))
    return found if "concurrency_jitter" not in changed else found == [0.1, 0.2, 0.4]


def of_errors(**changed: Any) -> Any:
    usual = {"concurrency_max_retries": 0, "error_handling_max_retries": 3, "error_handling_jitter": 0.0}
    found = waits(HandlerConfig(**{**usual, **changed}))
    return found if "error_handling_jitter" not in changed else found == [0.025, 0.05, 0.1]


def limit(**changed: Any) -> Any:
    """The slots and the time of a task that nothing is said of."""
    shift = Engine(HandlerConfig(**changed)).flows.worker()._shift
    found = shift.hands._limits.get_bulkhead("any")
    return found.max_concurrent, found.timeout_seconds


def listed(**changed: Any) -> Any:
    found = Engine(ResilienceConfig(**changed)).flows.worker()._shift.hands._limits.get_bulkhead("send-mail")
    return found.max_concurrent


def next_try(**changed: Any) -> Any:
    """After how many seconds a task is tried again that has failed twice, within its jitter."""
    engine = Engine(HandlerConfig(**changed))
    engine.journal.answers["a"] = [TaskResult.running({})] * 2
    start(engine.flows, stage("a"))
    worker = engine.flows.worker()
    for _ in range(2):
        worker.run_once()
        [item] = engine.store.page(ITEM)
        delay = (item.due_at - engine.store.now()) / 1e6
        engine.clock.advance(delay)
    return [low for low in (2.0, 10.0, 0.5) if 0.75 * low <= delay <= 1.25 * low]


def first_poll(**changed: Any) -> Any:
    shift = Engine(HandlerConfig(**changed)).flows.worker()._shift
    shift.look(woken=True)
    return round(shift.look(), 3)


def retry_of_messages(**changed: Any) -> Any:
    usual = {"error_handling_min_delay_ms": 8000, "error_handling_jitter": 0.0}
    engine = Engine(HandlerConfig(**{**usual, **changed}))
    engine.flows.queue.push(StartWorkflow(execution_id="nowhere"))
    engine.flows.worker().run_once()
    [item] = engine.store.page(ITEM)
    return (item.due_at - engine.store.now()) / 1e6


def page(**changed: Any) -> Any:
    engine = Engine(HandlerConfig(**changed))
    for _ in range(3):
        start(engine.flows, stage("a"))
    return len(engine.flows.find())


def kept_signals(**changed: Any) -> Any:
    engine = Engine(HandlerConfig(**changed))
    run = start(engine.flows, stage("a"))
    return engine.flows.signal(run.id, "early"), engine.flows.dead.count()


def patience_of_recovery(**changed: Any) -> Any:
    """How often a stage is found to wait for nothing before it fails."""
    engine, seen = Engine(HandlerConfig(**changed)), 0
    run = waiting_for_nothing(engine.flows, engine.store)
    while run.status is S.RUNNING:
        engine.flows.recovery.recover(run.id)
        seen += 1
    return seen


def lease(**changed: Any) -> Any:
    """How long a worker's row lives, and how often it is renewed."""
    engine = Engine(EngineConfig(**changed))
    seen: list[int] = []
    engine.flows.registry.register(
        "looks", lambda stage: seen.extend(row.due_at - engine.store.now() for row in engine.store.page(WORKER))
    )
    one = stage("a")
    one.tasks[0].implementing_class = "looks"
    start(engine.flows, one)
    worker = engine.flows.worker()
    worker.run_once()
    return seen[0] / 1e6, worker._beat_s


def isolation(**changed: Any) -> Any:
    return Engine(EngineConfig(**changed)).flows.worker().stats().get("any", {})


def recovers(**changed: Any) -> Any:
    engine = Engine(EngineConfig(**changed))
    run = start(engine.flows, stage("a"))
    lose_items(engine.store, run.id)
    engine.clock.advance(2 * 3600)
    return engine.flows._recover()


def merges(**changed: Any) -> Any:
    engine = Engine(EngineConfig(**changed))
    same = [TaskResult.success({"x": 1})], [TaskResult.success({"x": 2})]
    engine.journal.answers = dict(zip("ab", same, strict=True))
    run = start(engine.flows, stage("a"), stage("b"), stage("c", "a", "b"))
    engine.flows.worker().run_once()
    return run.status


def drifts(**changed: Any) -> Any:
    first = Engine()
    run = start(first.flows, stage("a"))
    first.flows.pause(run.id)
    second = Workflows(first.store, clock=first.clock, config=[EngineConfig(**changed), HandlerConfig(max_workers=3)])
    second.resume(run.id)
    return "config_drifted" in [entry.type for entry in second.log(run.id)]


def calls_before_it_opens(**changed: Any) -> Any:
    """How often a broken dependency is called, and after how long again; and whether another workflow is spared."""
    engine, called = Engine(ResilienceConfig(**changed)), list[str]()

    def breaks(stage: Any) -> TaskResult:
        called.append(stage.ref_id)
        raise TransientError("down", retry_after=0.001)

    engine.flows.registry.register("breaks", breaks)
    one = stage("a")
    one.tasks[0].implementing_class = "breaks"
    start(engine.flows, one)
    worker = engine.flows.worker()
    for _ in range(30):
        engine.clock.advance(0.01)
        worker.run_once()
    [item] = engine.store.page(ITEM)
    opened = len(called), round((item.due_at - engine.store.now()) / 1e6)
    other = stage("b")
    other.tasks[0].implementing_class = "breaks"
    start(engine.flows, other)
    worker.run_once()
    return *opened, called[-1]


def kept_circuits(**changed: Any) -> Any:
    factory = Engine(ResilienceConfig(**changed)).flows.worker()._shift._circuits
    for number in range(3):
        factory.get_circuit(f"w{number}", "http")
    return len(factory)


def place(**changed: Any) -> Any:
    return WorkflowStore(config=ResilienceConfig(**changed))._store.url


EFFECTS: dict[tuple[type, str], tuple[Callable[..., Any], Any, Any, Any]] = {
    (HandlerConfig, "concurrency_max_retries"): (in_place, [0.1, 0.2, 0.4], 1, [0.1]),
    (HandlerConfig, "concurrency_min_delay_ms"): (in_place, [0.1, 0.2, 0.4], 50, [0.05, 0.1, 0.2]),
    (HandlerConfig, "concurrency_max_delay_ms"): (in_place, [0.1, 0.2, 0.4], 150, [0.1, 0.15, 0.15]),
    (HandlerConfig, "concurrency_backoff_factor"): (in_place, [0.1, 0.2, 0.4], 3.0, [0.1, 0.3, 0.9]),
    (HandlerConfig, "concurrency_jitter"): (in_place, [0.1, 0.2, 0.4], 1.0, False),
    (HandlerConfig, "error_handling_max_retries"): (of_errors, [0.025, 0.05, 0.1], 1, [0.025]),
    (HandlerConfig, "error_handling_min_delay_ms"): (of_errors, [0.025, 0.05, 0.1], 50, [0.05, 0.1, 0.2]),
    (HandlerConfig, "error_handling_max_delay_ms"): (of_errors, [0.025, 0.05, 0.1], 30, [0.025, 0.03, 0.03]),
    (HandlerConfig, "error_handling_backoff_factor"): (of_errors, [0.025, 0.05, 0.1], 3.0, [0.025, 0.075, 0.225]),
    (HandlerConfig, "error_handling_jitter"): (of_errors, [0.025, 0.05, 0.1], 1.0, False),
    (HandlerConfig, "max_stage_wait_retries"): (patience_of_recovery, 240, 3, 3),
    (HandlerConfig, "default_task_timeout_seconds"): (limit, (10, 14400.0), 60, (10, 60.0)),
    (HandlerConfig, "task_backoff_min_delay_ms"): (next_try, [2.0], 5000, [10.0]),
    (HandlerConfig, "task_backoff_max_delay_ms"): (next_try, [2.0], 1000, []),
    (HandlerConfig, "handler_retry_delay_seconds"): (retry_of_messages, 8.0, 4, 4.0),
    (HandlerConfig, "poll_frequency_ms"): (first_poll, 0.05, 20, 0.02),
    (HandlerConfig, "max_workers"): (limit, (10, 14400.0), 3, (3, 14400.0)),
    (HandlerConfig, "default_page_size"): (page, 3, 2, 2),
    (HandlerConfig, "signal_buffer_max"): (kept_signals, (False, 0), 0, re.compile("keeps 0 signals already")),
    (EngineConfig, "isolation_mode"): (isolation, {}, "process", re.compile("application=")),
    (EngineConfig, "lease_heartbeat_seconds"): (lease, (3.0, 0.5), 1, (3.0, 1.0)),
    (EngineConfig, "lease_ttl_seconds"): (lease, (3.0, 0.5), 9, (9.0, 0.5)),
    (EngineConfig, "recovery_enabled"): (recovers, 1, False, 0),
    (EngineConfig, "recovery_max_age_hours"): (recovers, 1, 1, 0),
    (EngineConfig, "merge_strict"): (merges, S.SUCCEEDED, True, S.TERMINAL),
    (EngineConfig, "drift_policy"): (drifts, True, "ignore", False),
    (ResilienceConfig, "bulkheads"): (listed, 10, (("send_mail", BulkheadConfig(2)),), 2),
    (ResilienceConfig, "circuit_failure_threshold"): (
        calls_before_it_opens, (5, 30, "b"), Fraction(1, 5), (2, 30, "b")
    ),
    (ResilienceConfig, "circuit_cooldown_seconds"): (calls_before_it_opens, (5, 30, "b"), 90, (5, 90, "b")),
    (ResilienceConfig, "circuit_window"): (calls_before_it_opens, (5, 30, "b"), 4, (2, 30, "b")),
    (ResilienceConfig, "circuit_scope"): (calls_before_it_opens, (5, 30, "b"), "task_type", (5, 30, "a")),
    (ResilienceConfig, "circuit_cache_size"): (kept_circuits, 3, 2, 2),
    (ResilienceConfig, "database_url"): (place, re.compile("which store"), "memory://", "memory://"),
}  # fmt: skip
"""What is seen by default, another value, and what is seen with it."""
ELSEWHERE = {"retention_days"}
"""Read by what prunes workflows."""


@pytest.mark.parametrize(("kind", "name"), EFFECTS, ids=lambda part: getattr(part, "__name__", part))
def test_a_field_changes_what_the_engine_does(kind: type, name: str) -> None:
    probe, usual, value, changed = EFFECTS[kind, name]
    for expected, options in ((usual, {}), (changed, {name: value})):
        if isinstance(expected, re.Pattern):
            with pytest.raises(HoldfastError, match=expected):
                probe(**options)
        else:
            assert probe(**options) == expected


@pytest.mark.parametrize("kind", [HandlerConfig, EngineConfig, ResilienceConfig])
def test_every_field_is_among_those_that_change_something(kind: Any) -> None:
    shown = {name for owner, name in EFFECTS if owner is kind} | ELSEWHERE
    assert {one.name for one in fields(kind)} <= shown


def test_a_backoff_is_what_the_delays_are_made_of() -> None:
    """BackoffConfig has no home of its own in the engine: HandlerConfig's delays are some."""
    assert HandlerConfig().concurrency_backoff == BackoffConfig()
    assert {one.name for one in fields(BackoffConfig)} == {"min_delay_ms", "max_delay_ms", "factor", "jitter"}


def test_an_application_says_how_its_workflows_run() -> None:
    with Holdfast("memory://", workflows=[HandlerConfig(max_workers=3), EngineConfig(lease_ttl_seconds=9)]) as hold:
        assert hold.workflows.configs.handler.max_workers == 3
        assert hold.workflows.configs.engine.lease_ttl_seconds == 9
        assert hold.workflows.configs.resilience == ResilienceConfig()


def test_what_is_not_said_in_code_is_as_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_PROCESSOR_MAX_WORKERS", "4")
    monkeypatch.setenv("STABILIZE_LEASE_TTL_S", "7")
    with Holdfast("memory://", workflows=EngineConfig()) as hold:
        assert hold.workflows.configs.handler.max_workers == 4
        assert hold.workflows.configs.engine.lease_ttl_seconds == 3  # what is given in code goes first


def test_a_bad_variable_is_named_when_workflows_are_first_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_PROCESSOR_MAX_WORKERS", "many")
    with Holdfast("memory://") as hold, pytest.raises(ConfigurationError, match="HOLDFAST_PROCESSOR_MAX_WORKERS"):
        _ = hold.workflows


@pytest.mark.parametrize("given", ["fast", 7, [HandlerConfig(), HandlerConfig()], [EngineConfig(), None]])
def test_what_is_no_configuration_is_refused(given: Any) -> None:
    with pytest.raises(ConfigurationError, match="give each of ResilienceConfig, HandlerConfig, EngineConfig"):
        Configs.of(given)


def test_tasks_run_in_processes_of_their_own_where_that_is_asked_for() -> None:
    engine = Engine(EngineConfig(isolation_mode="process"))
    engine.flows.register(added)
    run = engine.flows.start(twice, 4)
    worker = engine.flows.worker(application="tests.workflows.isolated_tasks:tasks")
    worker.run_once()
    worker.close()
    assert run.result(0) == 8


@task(name="add")
def added(value: int, more: int) -> int:
    raise AssertionError("it must not run here")


@workflow
def twice(value: int) -> Any:
    return added(added(value, 2), 2)


def test_a_task_in_a_process_of_its_own_has_its_key() -> None:
    engine = Engine(EngineConfig(isolation_mode="process"))
    engine.flows.register(key)
    run = engine.flows.start(workflow(name="keyed")(lambda: key()))
    worker = engine.flows.worker(application="tests.workflows.isolated_tasks:tasks")
    worker.run_once()
    worker.close()
    assert run.result(0) == f"{run.id}.key.1.0"


@task
def key() -> str:
    raise AssertionError("it must not run here")


def test_a_stage_in_a_process_of_its_own_sees_what_the_stages_before_it_have_left() -> None:
    engine = Engine(EngineConfig(isolation_mode="process"))
    for name in ("greet", "echo"):
        engine.flows.registry.register(name, lambda stage: TaskResult.terminal("it must not run here"))
    stages = [stage("first", context={"name": "ann"}), stage("then", "first")]
    stages[0].tasks[0].implementing_class, stages[1].tasks[0].implementing_class = "greet", "greet"
    stages[0].type = stages[1].type = "greet"
    run = start(engine.flows, *stages, context={"name": "bob"})
    worker = engine.flows.worker(application="tests.workflows.isolated_tasks:registry")
    worker.run_once()
    worker.close()
    assert engine.flows.workflow(run.id).stage("first").outputs["greeting"] == "hello ann"
    assert engine.flows.workflow(run.id).stage("then").outputs["greeting"] == "hello bob"


def test_outputs_that_clash_are_refused_also_in_a_workflow_that_a_worker_begins_at_once() -> None:
    flows = Workflows(MemoryStore(), config=[EngineConfig(merge_strict=True)])
    journal = Journal(flows)
    with flows.worker():
        for _ in range(3):  # the first one is started by a message: its definition is new
            journal.answers = {"a": [TaskResult.success({"x": 1})], "b": [TaskResult.success({"x": 2})]}
            run = start(flows, stage("a"), stage("b"), stage("c", "a", "b"))
            with pytest.raises(TaskError, match="publish different values of 'x'"):
                run.result(PATIENCE_S)


def test_outputs_that_clash_are_refused_also_by_the_step_of_a_transactional_task(tmp_path: Path) -> None:
    with Holdfast(f"sqlite:///{tmp_path}/store.db", workflows=[EngineConfig(merge_strict=True)]) as hold:
        flows, journal = hold.workflows, Journal(hold.workflows)
        flows.registry.register("booked", journal.run, effect="transactional")
        journal.answers = {"a": [TaskResult.success({"x": 1})], "b": [TaskResult.success({"x": 2})]}
        booked = stage("last", "first")
        booked.tasks[0].implementing_class = "booked"
        run = start(
            flows, stage("a"), stage("b"), stage("first"), booked, stage("c", "a", "b", "last", enabled="x == 1")
        )
        flows.worker().run_once()
        with pytest.raises(TaskError, match="publish different values of 'x'"):
            run.result(0)
