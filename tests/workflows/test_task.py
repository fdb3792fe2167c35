"""Tasks, where they are registered, and what their exceptions mean."""

from __future__ import annotations

import inspect
from datetime import timedelta
from typing import Any

import pytest

from holdfast.errors import (
    BulkheadFullError,
    CircuitOpen,
    ConcurrencyError,
    ConfigurationError,
    HoldfastError,
    PermanentError,
    TaskError,
    TaskNotFoundError,
    TaskTimeoutError,
    TransientError,
)
from holdfast.workflows.faults import Fault
from holdfast.workflows.model import Workflow
from holdfast.workflows.provided import PROVIDED
from holdfast.workflows.registry import TaskRegistry
from holdfast.workflows.result import TaskResult
from holdfast.workflows.stage import StageExecution
from holdfast.workflows.task import RetryableTask, SkippableTask, Task
from holdfast.workflows.task_run import TaskExecution
from holdfast.workflows.tasks.builtin import builtin_tasks

STAGE = StageExecution(ref_id="a", context={"go": True})


class Charge(Task):
    aliases = ("pay",)

    def execute(self, stage: StageExecution) -> TaskResult:
        return TaskResult.success({"ref": stage.ref_id})


class ChargeLater(Task):
    async def execute(self, stage: StageExecution) -> TaskResult:
        return TaskResult.success({"ref": stage.ref_id})


class Poll(RetryableTask):
    def execute(self, stage: StageExecution) -> TaskResult:
        return TaskResult.running()

    def get_timeout(self) -> timedelta:
        return timedelta(minutes=5)

    def get_backoff_period(self, stage: StageExecution, duration: timedelta) -> timedelta:
        return duration / 2


class Optional(SkippableTask):
    def is_enabled(self, stage: StageExecution) -> bool:
        return bool(stage.context.get("go"))

    def do_execute(self, stage: StageExecution) -> TaskResult:
        return TaskResult.success()


@pytest.fixture
def registry() -> TaskRegistry:
    return TaskRegistry()


def test_a_task_has_hooks_that_do_nothing() -> None:
    task = Charge()
    assert (task.on_timeout(STAGE), task.on_cancel(STAGE), task.on_cleanup(STAGE)) == (None, None, None)


def test_a_retryable_task_has_its_own_limit_and_pause() -> None:
    task = Poll()
    assert task.get_dynamic_timeout(STAGE) == timedelta(minutes=5)
    assert task.get_dynamic_backoff_period(STAGE, timedelta(seconds=8)) == timedelta(seconds=4)


def test_a_skippable_task_is_asked_first() -> None:
    assert Optional().execute(STAGE) == TaskResult.success()
    idle = StageExecution(ref_id="b")
    assert Optional().should_skip(idle)
    assert Optional().execute(idle) == TaskResult.skipped()


async def test_a_task_may_be_a_coroutine(registry: TaskRegistry) -> None:
    registry.register("later", ChargeLater)
    answer = registry.resolve("later").execute(STAGE)
    assert inspect.isawaitable(answer)
    assert await answer == TaskResult.success({"ref": "a"})


def test_a_class_is_made_anew_for_every_call(registry: TaskRegistry) -> None:
    registry.register("charge", Charge)
    first, second = registry.resolve("charge"), registry.resolve("pay")
    assert isinstance(first, Charge)
    assert isinstance(second, Charge)
    assert first is not second


def test_an_instance_serves_all_calls(registry: TaskRegistry) -> None:
    task = registry.register("charge", Charge())
    assert registry.resolve("charge") is registry.resolve("pay") is task


def test_a_function_is_a_task(registry: TaskRegistry) -> None:
    @registry.register("greet", aliases=["hello"])
    def greet(stage: StageExecution) -> dict[str, Any]:
        return {"greeting": f"hello {stage.ref_id}"}

    answer: Any = registry.resolve("hello").execute(STAGE)
    assert answer == {"greeting": "hello a"}
    assert greet(STAGE) == {"greeting": "hello a"}
    registry.register("greet", greet)  # the same again, as when a module is loaded twice
    assert sorted(registry) == ["greet", "hello"]
    assert ("greet" in registry, len(registry)) == (True, 2)


def test_an_unknown_name_says_what_there_is(registry: TaskRegistry) -> None:
    with pytest.raises(TaskNotFoundError, match="no task named 'x' is registered; there are none"):
        registry.resolve("x")
    registry.register("charge", Charge)
    with pytest.raises(TaskNotFoundError, match=r"there are charge, pay$"):
        registry.resolve("x")


def test_a_task_of_holdfasts_that_nobody_has_registered_says_how_it_is(registry: TaskRegistry) -> None:
    assert set(builtin_tasks()) == PROVIDED
    with pytest.raises(TaskNotFoundError, match=r"registry\.register\('shell', builtin_tasks\(\)\['shell'\]\)"):
        registry.resolve("shell")
    registry.register("shell", builtin_tasks()["shell"])  # as it says
    assert registry.resolve("shell")


def test_a_name_that_is_taken_is_refused_and_nothing_is_half_registered(registry: TaskRegistry) -> None:
    registry.register("pay", ChargeLater)
    with pytest.raises(ConfigurationError, match="'pay' is registered already"):
        registry.register("charge", Charge)
    assert list(registry) == ["pay"]


@pytest.mark.parametrize(
    ("task", "story"),
    [(Task, "Task does not define execute"), (int, "int must derive from Task"), (7, "got 7")],
)
def test_what_is_no_task_is_refused(registry: TaskRegistry, task: Any, story: str) -> None:
    with pytest.raises(ConfigurationError, match=story):
        registry.register("x", task)


def test_an_empty_name_is_refused(registry: TaskRegistry) -> None:
    with pytest.raises(ConfigurationError, match="a task's name is a text, got ''"):
        registry.register("", Charge)


def test_registries_do_not_know_each_other(registry: TaskRegistry) -> None:
    registry.register("charge", Charge)
    registry.declare_transient(ValueError)
    other = TaskRegistry()
    assert "charge" not in other
    assert other.classify(ValueError()) is Fault.PERMANENT


def test_a_workflow_is_checked_against_a_registry(registry: TaskRegistry) -> None:
    registry.register("charge", Charge)
    stage = StageExecution(ref_id="a", tasks=[TaskExecution.create("pay it", "pay")])
    Workflow.create("shop", "fulfil", [stage], tasks=registry)
    stage.add_task(TaskExecution.create("x", "x"))
    with pytest.raises(ValueError, match="unknown_task_type"):
        Workflow.create("shop", "fulfil", [stage], tasks=registry)


@pytest.mark.parametrize(
    ("error", "fault"),
    [
        (TransientError("x"), "transient"),
        (ConcurrencyError("x"), "transient"),
        (BulkheadFullError("x"), "transient"),
        (CircuitOpen("bank", 3.0), "transient"),
        (ConnectionResetError(), "transient"),
        (PermanentError("x"), "permanent"),
        (TaskError("x"), "permanent"),
        (TaskTimeoutError("x"), "permanent"),
        (ValueError("x"), "permanent"),
        (FileNotFoundError("x"), "permanent"),
        (HoldfastError("x"), "permanent"),
    ],
)
def test_what_is_known_without_being_told(registry: TaskRegistry, error: Exception, fault: str) -> None:
    assert registry.classify(error) == fault


def test_no_word_in_a_name_counts(registry: TaskRegistry) -> None:
    for name in ("TransientNetworkError", "RateLimitTimeout", "ConnectionTemporarilyUnavailable", "RetryableError"):
        assert registry.classify(type(name, (Exception,), {})()) is Fault.PERMANENT
    for name in ("PermanentError", "ValidationError", "FatalError"):
        assert registry.classify(type(name, (TransientError,), {})()) is Fault.TRANSIENT


def test_the_nearest_declared_type_decides(registry: TaskRegistry) -> None:
    class Busy(LookupError):
        pass

    registry.declare_transient(LookupError)
    assert registry.classify(KeyError()) is Fault.TRANSIENT
    registry.declare_permanent(KeyError)
    assert registry.classify(KeyError()) is Fault.PERMANENT
    assert registry.classify(Busy()) is Fault.TRANSIENT
    with pytest.raises(TypeError, match="takes exception types, got 'KeyError'"):
        registry.declare_transient("KeyError")  # type: ignore[arg-type]


def test_the_first_predicate_with_an_opinion_decides(registry: TaskRegistry) -> None:
    registry.add_predicate(lambda error: None)
    registry.add_predicate(lambda error: Fault.TRANSIENT if getattr(error, "code", 0) == 503 else None)
    registry.add_predicate(lambda error: Fault.PERMANENT)
    busy = ValueError("busy")
    busy.code = 503  # type: ignore[attr-defined]
    assert registry.classify(busy) is Fault.TRANSIENT
    assert registry.classify(TransientError()) is Fault.PERMANENT


def raised(error: BaseException, cause: BaseException | None) -> BaseException:
    try:
        raise error from cause
    except BaseException as caught:
        return caught


def test_what_an_error_was_raised_from_decides_if_it_says_nothing_itself(registry: TaskRegistry) -> None:
    cause = TransientError("busy", retry_after=7, context_update={"page": 2})
    judged = registry.judge(raised(RuntimeError("outer"), raised(ValueError("middle"), cause)))
    assert (judged.fault, judged.decided_by) == ("transient", cause)
    assert (judged.retry_after, judged.context_update) == (7.0, {"page": 2})
    assert registry.classify(raised(PermanentError(), cause)) is Fault.PERMANENT
    assert registry.classify(raised(TransientError(), PermanentError())) is Fault.TRANSIENT


def test_an_error_while_another_was_handled_is_a_new_one(registry: TaskRegistry) -> None:
    with pytest.raises(ValueError, match="a bug") as caught:
        try:
            raise TransientError("busy")
        except TransientError:
            raise ValueError("a bug in the handling")  # noqa: B904
    assert isinstance(caught.value.__context__, TransientError)
    assert registry.classify(caught.value) is Fault.PERMANENT


def test_a_circle_of_causes_ends(registry: TaskRegistry) -> None:
    one, other = ValueError(), KeyError()
    one.__cause__, other.__cause__ = other, one
    assert registry.judge(one) == (Fault.PERMANENT, None, None, None)


def test_a_group_is_transient_if_all_of_it_is(registry: TaskRegistry) -> None:
    assert registry.classify(ExceptionGroup("both", [TransientError(), ConnectionError()])) is Fault.TRANSIENT
    assert registry.classify(ExceptionGroup("both", [TransientError(), ValueError()])) is Fault.PERMANENT


def test_an_error_says_when_to_come_back(registry: TaskRegistry) -> None:
    assert registry.judge(TransientError(retry_after=timedelta(minutes=1))).retry_after == 60.0
    assert registry.judge(CircuitOpen("bank", 3.0)).retry_after == 3.0
    assert registry.judge(TransientError()).retry_after is None
