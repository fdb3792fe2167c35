"""Effects: what a task declares, what the engine refuses because of it, and writes that commit with their step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import sqlalchemy as sa

from holdfast import (
    Breaker,
    Cache,
    Effect,
    Fallback,
    Hedge,
    Holdfast,
    Hub,
    RateLimit,
    Retry,
    RetryPolicy,
    StageExecution,
    Task,
    TaskError,
    TaskExecution,
    TaskResult,
    TransientError,
    Workflow,
    WorkflowDefinitionError,
    WorkflowStatus,
    current_session,
    current_task,
    task,
    workflow,
)
from holdfast.store.codec import to_json
from holdfast.testing import ManualClock
from holdfast.workflows.error_document import error_document, error_of
from holdfast.workflows.faults import Faults
from holdfast.workflows.records import ITEM
from holdfast.workflows.tasks.sub_workflow import SubWorkflowTask
from holdfast.workflows.worker import WorkflowWorker
from holdfast.workflows.workflows import Workflows

S = WorkflowStatus
BOOKED = sa.Table(
    "booked", sa.MetaData(), sa.Column("id", sa.Integer, primary_key=True), sa.Column("key", sa.String(100))
)


@pytest.fixture
def ledger(hold: Holdfast) -> Iterator[Holdfast]:
    """The application with a table of its own."""
    with hold.sessions() as session, session.begin():
        BOOKED.create(session.connection())
    yield hold
    with hold.sessions() as session, session.begin():
        BOOKED.drop(session.connection())


def booked(hold: Holdfast) -> list[str]:
    with hold.sessions() as session:
        return list(session.scalars(sa.select(BOOKED.c.key).order_by(BOOKED.c.id)))


@task(effect="transactional")
def book(number: int) -> int:
    here = current_task()
    assert here is not None
    current_session().execute(BOOKED.insert().values(id=number, key=here.idempotency_key))
    return number + 1


@task
def fail_once(number: int) -> int:
    return number


@workflow
def booking(number: int) -> Any:
    return fail_once(book(number))


def test_what_a_transactional_task_writes_is_there_when_its_step_is(ledger: Holdfast, crew: WorkflowWorker) -> None:
    run = ledger.workflows.start(booking, 1)
    assert booked(ledger) == []
    crew.run_once()
    assert (run.result(0), booked(ledger)) == (2, [f"{run.id}.book.1.0"])


def test_what_a_transactional_task_raises_undoes_what_it_wrote(
    ledger: Holdfast, crew: WorkflowWorker, clock: ManualClock
) -> None:
    tries: list[int] = []

    @task(effect="transactional", retry=Retry(attempts=3, base=1))
    def shaky() -> int:
        current_session().execute(BOOKED.insert().values(id=len(tries), key="k"))
        tries.append(1)
        if len(tries) < 3:
            raise OSError("the cable")
        return len(tries)

    run = ledger.workflows.start(_only(shaky))
    for _ in range(3):
        crew.run_once()
        clock.advance(60)
    assert (run.result(0), booked(ledger)) == (3, ["k"])


def test_an_answer_that_cannot_be_stored_undoes_the_writes_behind_it(ledger: Holdfast, crew: WorkflowWorker) -> None:
    @task(effect="transactional")
    def odd() -> Any:
        current_session().execute(BOOKED.insert().values(id=1, key="k"))
        return object()

    run = ledger.workflows.start(_only(odd))
    crew.run_once()
    assert (run.status, booked(ledger)) == (S.TERMINAL, [])


@pytest.mark.parametrize("goes_on", [False, True])
@pytest.mark.parametrize("end", ["commit", "rollback", "close"])
def test_a_body_that_ends_its_session_by_itself_fails_and_is_not_run_again(
    ledger: Holdfast, crew: WorkflowWorker, clock: ManualClock, end: str, goes_on: bool
) -> None:
    tries: list[int] = []

    @task(effect="transactional", retry=Retry(attempts=3, base=1))
    def hasty() -> None:
        tries.append(1)
        current_session().execute(BOOKED.insert().values(id=len(tries), key="k"))
        getattr(current_session(), end)()
        if goes_on:
            current_session().execute(BOOKED.insert().values(id=10 + len(tries), key="k"))

    run = ledger.workflows.start(_only(hasty))
    crew.run_once()
    clock.advance(60)
    crew.run_once()
    assert (run.status, len(tries)) == (S.TERMINAL, 1)
    assert "'hasty' has committed, rolled back or closed its session" in str(run.record.reason)


def test_a_body_may_undo_a_part_of_its_writes(ledger: Holdfast, crew: WorkflowWorker) -> None:
    @task(effect="transactional")
    def careful() -> str:
        session = current_session()
        session.execute(BOOKED.insert().values(id=1, key="kept"))
        with session.begin_nested() as part:
            session.execute(BOOKED.insert().values(id=2, key="undone"))
            part.rollback()
        return "done"

    run = ledger.workflows.start(_only(careful))
    crew.run_once()
    assert (run.result(0), booked(ledger)) == ("done", ["kept"])


# On SQLite nobody else can write while the body runs, so nothing can be lost or cancelled then.
on_a_server = pytest.mark.parametrize("hold", ["postgres"], indirect=True)


@on_a_server
def test_who_has_lost_the_step_meanwhile_has_written_nothing(ledger: Holdfast, crew: WorkflowWorker) -> None:
    calls: list[str] = []

    @task(effect="transactional")
    def slow() -> int:
        calls.append("called")
        current_session().execute(BOOKED.insert().values(id=len(calls), key="k"))
        if len(calls) == 1:  # another worker thinks that we are dead
            ledger.store.sweep(ITEM, (), {"owner": None, "due_at": ledger.store.now()})
        return 1

    run = ledger.workflows.start(_only(slow))
    crew.run_once()
    assert (run.result(0), booked(ledger), len(calls)) == (1, ["k"], 2)


@on_a_server
def test_a_workflow_that_was_cancelled_meanwhile_is_left_without_the_effect(
    ledger: Holdfast, crew: WorkflowWorker
) -> None:
    @task(effect="transactional")
    def slow() -> int:
        current_session().execute(BOOKED.insert().values(id=1, key="k"))
        ledger.workflows.cancel(run.id)
        return 1

    run = ledger.workflows.start(_only(slow))
    crew.run_once()
    assert (run.status, booked(ledger)) == (S.CANCELED, [])


@on_a_server
def test_a_workflow_that_others_have_changed_meanwhile_is_read_again_and_the_effect_stays(
    ledger: Holdfast, crew: WorkflowWorker
) -> None:
    @task(effect="transactional")
    def slow() -> int:
        current_session().execute(BOOKED.insert().values(id=1, key="k"))
        ledger.workflows.signal(run.id, "hello")
        return 1

    run = ledger.workflows.start(_only(slow))
    crew.run_once()
    assert (run.result(0), booked(ledger)) == (1, ["k"])


def test_a_message_that_is_published_in_the_step_lives_and_dies_with_it(ledger: Holdfast, crew: WorkflowWorker) -> None:
    @task(effect="transactional")
    def tell(number: int) -> None:
        ledger.outbox.publish(current_session(), "told", {"number": number})
        if number < 0:
            raise ValueError("no")

    @workflow
    def telling(number: int) -> Any:
        return tell(number)

    for number in (1, -1):
        ledger.workflows.start(telling, number)
    crew.run_once()
    with ledger.sessions() as session:
        assert session.scalar(sa.select(sa.func.count()).select_from(ledger.tables.outbox)) == 1


def test_many_transactional_steps_of_one_workflow_side_by_side_are_all_written_once(
    ledger: Holdfast, crew: WorkflowWorker
) -> None:
    @workflow
    def wide(numbers: list[int]) -> Any:
        return [book(number) for number in range(8)]

    run = ledger.workflows.start(wide, [])
    while run.status is S.RUNNING:  # who was too late again and again is due once more, a little later
        crew.run_once()
    assert run.result(0) == list(range(1, 9))
    assert len(booked(ledger)) == 8


def test_a_stage_that_is_a_model_can_be_transactional_too(ledger: Holdfast, crew: WorkflowWorker) -> None:
    class Book(Task):
        effect = Effect.TRANSACTIONAL

        def execute(self, stage: StageExecution) -> TaskResult:
            current_session().execute(BOOKED.insert().values(id=1, key=stage.ref_id))
            return TaskResult.success({"booked": 1})

    ledger.workflows.registry.register("book", Book)
    stage = StageExecution.create("book", "b", "b", tasks=[TaskExecution.create("book", "book")])
    run = ledger.workflows.start(Workflow.create("shop", "one", [stage]))
    crew.run_once()
    assert (run.status, booked(ledger)) == (S.SUCCEEDED, ["b"])
    assert ledger.workflows.describe(run.id).effect is Effect.TRANSACTIONAL


def test_there_is_no_session_outside_of_a_transactional_task(ledger: Holdfast, crew: WorkflowWorker) -> None:
    with pytest.raises(TaskError, match='effect="transactional"'):
        current_session()

    @task
    def plain() -> None:
        current_session()

    run = ledger.workflows.start(_only(plain))
    crew.run_once()
    assert run.status is S.TERMINAL


def test_a_transactional_task_is_refused_where_there_is_no_database(flows: Workflows) -> None:
    with pytest.raises(WorkflowDefinitionError, match=r"'book' is transactional.*sqlite") as caught:
        flows.register(book)
    assert caught.value.code == "no_transactions"
    with Holdfast("memory://", telemetry=Hub(), background=False) as hold:
        with pytest.raises(WorkflowDefinitionError, match="SQL database"):
            hold.workflows.start(booking, 1)
        hold.workflows.registry.register("book", lambda stage: None, effect="transactional")
        one = StageExecution.create("book", "book", "book", tasks=[TaskExecution.create("book", "book")])
        with pytest.raises(WorkflowDefinitionError, match=r"'book' is transactional.*SQL database") as caught:
            hold.workflows.start(Workflow.create("shop", "books", [one]))
        assert caught.value.code == "no_transactions"


@pytest.mark.parametrize("effect", [None, "pure", "idempotent", "transactional"])
def test_a_retry_policy_is_for_what_may_be_repeated(effect: str | None) -> None:
    assert task(effect=effect, retry=Retry(attempts=3))(lambda: None).retry is not None
    with pytest.raises(WorkflowDefinitionError, match=r"is at_least_once and is retried by retry=") as caught:
        task(effect="at_least_once", retry=RetryPolicy(max_attempts=3))(lambda: None)
    assert caught.value.code == "unsafe_effect"
    task(effect="at_least_once", retry=Retry(attempts=1))(lambda: None)  # that is none


def test_an_effect_that_does_not_exist_is_refused_with_those_that_do() -> None:
    with pytest.raises(WorkflowDefinitionError, match=r"exactly_once.*pure, transactional, idempotent") as caught:
        task(effect="exactly_once")(lambda: None)
    assert caught.value.code == "unknown_effect"


def test_an_async_task_cannot_write_in_the_transaction_of_its_step() -> None:
    with pytest.raises(WorkflowDefinitionError, match="is async"):

        @task(effect="transactional")
        async def later() -> None: ...


@pytest.mark.parametrize(
    ("policy", "refused"),
    [
        (Hedge(1.0), {None, "transactional", "at_least_once"}),
        (Retry(attempts=3), {"at_least_once"}),
        (Cache(ttl=60), {"transactional", "at_least_once"}),
        (Fallback(value=None), set()),
    ],
)
@pytest.mark.parametrize("effect", [None, *Effect])
@pytest.mark.parametrize("hold", ["sqlite"], indirect=True)
def test_a_guard_that_calls_too_often_or_not_at_all_is_refused_at_once(
    hold: Holdfast, policy: Any, refused: set[Any], effect: Any
) -> None:
    @task(guard="remote", effect=effect)
    def call() -> None: ...

    hold.guard("remote", policy)
    if effect not in refused:
        hold.workflows.register(call)
        return
    with pytest.raises(WorkflowDefinitionError, match="guard 'remote'") as caught:
        hold.workflows.register(call)
    assert (caught.value.code, "call" in hold.workflows.tasks) == ("unsafe_effect", False)


@pytest.mark.parametrize("hold", ["sqlite"], indirect=True)
def test_a_guard_that_comes_later_is_checked_by_the_worker_and_by_the_call(hold: Holdfast) -> None:
    @task(guard="remote")
    def call() -> str:
        return "called"

    hold.workflows.register(call)
    guard = hold.guard("remote", Retry(attempts=2))
    worker = hold.workflows.worker()
    guard.replace(Hedge(1.0))
    with pytest.raises(WorkflowDefinitionError, match="hedges"):
        hold.workflows.worker()
    run = hold.workflows.start(_only(call))
    worker.run_once()
    worker.close()
    assert run.status is S.TERMINAL
    with pytest.raises(TaskError, match="hedges"):
        run.result(0)


def test_a_model_whose_task_must_not_be_repeated_may_have_no_retry_policy(flows: Workflows) -> None:
    flows.registry.register("send", lambda stage: None, effect="at_least_once")
    tasks = [TaskExecution.create("send", "send", retry_policy=RetryPolicy(max_attempts=3))]
    one = StageExecution.create("send", "send", "send", tasks=tasks)
    with pytest.raises(WorkflowDefinitionError, match="'send' is at_least_once"):
        flows.start(Workflow.create("shop", "sends", [one]))


def test_a_model_whose_task_must_not_be_repeated_is_not_called_again_after_its_time(flows: Workflows) -> None:
    flows.registry.register("send", lambda stage: None, effect="at_least_once")
    tasks = [TaskExecution.create("send", "send", timeout=5, retry_timeouts=True)]
    one = StageExecution.create("send", "send", "send", tasks=tasks)
    with pytest.raises(WorkflowDefinitionError, match="'send' is at_least_once and is retried by retry_timeouts"):
        flows.start(Workflow.create("shop", "sends", [one]))


def unknown_here(kind: type[Exception]) -> Exception:
    """What comes back from the process of a task that raised an error of a class that only that process has."""

    class Lost(kind):  # type: ignore[misc, valid-type]  # whichever it is given
        pass

    return error_of(error_document(Lost("reset"), Faults().judge))


def test_a_step_that_starts_a_workflow_says_so_and_promises_nothing_for_it(flows: Workflows) -> None:
    @task(effect="pure")
    def look() -> int:
        return 1

    @workflow
    def inner() -> Any:
        return look()

    @workflow
    def outer() -> Any:
        return inner()

    told = flows.describe(outer)
    assert told.effect is Effect.AT_LEAST_ONCE
    assert told.steps[0].label == "another workflow"
    assert told.steps[0].words.startswith("is started exactly once;")
    assert flows.describe(inner).effect is Effect.PURE


def test_the_built_in_task_that_starts_a_workflow_is_told_as_that_whatever_it_is_called(flows: Workflows) -> None:
    flows.registry.register("sub_workflow", SubWorkflowTask())
    tasks = [TaskExecution.create("begin the other", "sub_workflow")]
    one = StageExecution.create("sub_workflow", "a", "a", tasks=tasks, context={"workflow": "other"})
    (step,) = flows.describe(Workflow.create("shop", "above", [one])).steps
    assert (step.task, step.label) == ("begin the other", "another workflow")


@pytest.mark.parametrize("made_as", ["function", "model"])
@pytest.mark.parametrize(
    ("error", "calls"),
    [
        (ConnectionError("reset"), 1),
        (KeyError("declared"), 1),
        (TransientError("not begun", retry_after=60), 2),
        (unknown_here(ConnectionError), 1),
        (unknown_here(TransientError), 2),
    ],
)
def test_what_must_not_be_repeated_is_tried_again_only_where_its_author_says_so(
    flows: Workflows, worker: WorkflowWorker, clock: ManualClock, made_as: str, error: Exception, calls: int
) -> None:
    sent: list[int] = []

    def send(*_: Any) -> None:
        sent.append(1)
        if len(sent) == 1:
            raise error

    flows.registry.declare_transient(KeyError)
    if made_as == "function":
        by_function = task(name="send", effect="at_least_once")(send)
        run = flows.start(workflow(name="sends")(lambda: by_function()))
    else:
        flows.registry.register("send", send, effect="at_least_once")
        one = StageExecution.create("send", "send", "send", tasks=[TaskExecution.create("send", "send")])
        run = flows.start(Workflow.create("shop", "sends", [one]))
    for _ in range(3):
        worker.run_once()
        clock.advance(100)
    assert (len(sent), run.status) == (calls, S.TERMINAL if calls == 1 else S.SUCCEEDED)


@pytest.mark.parametrize("guard", [None, "bank"])
def test_a_refusal_that_a_body_met_that_must_not_be_repeated_does_not_call_it_again(
    hold: Holdfast, clock: ManualClock, guard: str | None
) -> None:
    hold.guard("bank", Breaker())
    mail = hold.guard("mail", RateLimit(1, per=60))
    mail.call(lambda: None)
    paid: list[int] = []

    @task(effect="at_least_once", guard=guard)
    def pay() -> None:
        paid.append(1)
        mail.call(lambda: None)

    run, worker = hold.workflows.start(_only(pay)), hold.workflows.worker()
    for _ in range(3):
        worker.run_once()
        clock.advance(100)
    worker.close()
    assert (len(paid), run.status) == (1, S.TERMINAL)


def test_a_description_says_what_holds_for_each_step_and_for_the_whole(flows: Workflows) -> None:
    @task(effect="pure")
    def look() -> int:
        return 1

    @task(effect="idempotent")
    def pay(number: int) -> int:
        return number

    @task
    def mail(number: int) -> None: ...

    @workflow
    def shop(order: dict[str, Any]) -> Any:
        paid = pay(look())
        return mail(paid, after=paid)

    @workflow(dead_letter=False)
    def quiet() -> Any:
        return pay(look())

    told = flows.describe(shop)
    assert [(one.stage, one.effect) for one in told.steps] == [
        ("look", Effect.PURE), ("pay", Effect.IDEMPOTENT), ("mail", None),
    ]  # fmt: skip
    assert (told.effect, told.weakest) == (Effect.AT_LEAST_ONCE, ("mail",))
    assert "at least once, and some may happen again" in str(told)
    assert "leaves a dead letter" in told.words
    assert flows.describe(quiet).effect is Effect.IDEMPOTENT
    assert "no dead letter" in flows.describe(quiet).words
    run = flows.start(shop, {"id": 1})
    assert flows.describe(run.id) == told == run.describe()
    assert told.to_document()["steps"][1]["effect"] == "idempotent"
    assert to_json(told.to_document())


@pytest.mark.parametrize("made_as", ["function", "model"])
def test_to_look_at_keys_and_types_takes_nothing_from_what_a_workflow_guarantees(
    flows: Workflows, made_as: str
) -> None:
    asked = {"required_keys": ["paid"], "type_checks": {"paid": "bool"}}
    if made_as == "function":
        pay = task(name="pay", effect="idempotent", verify=asked)(lambda: {"paid": True})
        told = flows.describe(workflow(name="pays")(lambda: pay()))
    else:
        flows.registry.register("pay", lambda stage: {"paid": True}, effect="idempotent")
        tasks = [TaskExecution.create("pay", "pay")]
        one = StageExecution.create("pay", "pay", "pay", tasks=tasks, verification=asked)
        told = flows.describe(Workflow.create("shop", "pays", [one]))
    assert ([one.effect for one in told.steps], told.effect) == ([Effect.IDEMPOTENT, Effect.PURE], Effect.IDEMPOTENT)


@pytest.mark.parametrize("effect", ["at_least_once", None])
def test_a_task_that_is_called_like_a_look_at_keys_and_types_guarantees_what_it_says(
    flows: Workflows, effect: str | None
) -> None:
    for name in ("pay", "pay.check"):
        flows.registry.register(name, lambda stage: None, effect="idempotent" if name == "pay" else effect)
    tasks = [TaskExecution.create(name, name, position=at) for at, name in enumerate(("pay", "pay.check"))]
    told = flows.describe(Workflow.create("shop", "pays", [StageExecution.create("pay", "pay", "pay", tasks=tasks)]))
    assert [one.effect for one in told.steps] == [Effect.IDEMPOTENT, effect]
    assert told.effect is Effect.AT_LEAST_ONCE


def test_a_body_that_looks_at_its_input_needs_an_example_to_be_described(flows: Workflows) -> None:
    @workflow
    def branching(order: dict[str, Any]) -> Any:
        return fail_once(1) if order["big"] else fail_once(2)

    flows.add(branching)
    with pytest.raises(WorkflowDefinitionError, match=r"looks at its input.*example") as caught:
        flows.describe("branching")
    assert caught.value.code == "needs_input"
    assert flows.describe("branching", {"big": True}).effect is Effect.AT_LEAST_ONCE


@pytest.mark.parametrize(
    "look", [lambda order: order.get("big"), lambda order: order > 3, lambda order: order + 1, lambda order: [*order]]
)
def test_however_a_body_looks_at_its_input_it_is_told_which_one(flows: Workflows, look: Callable[[Any], Any]) -> None:
    @workflow
    def looking(order: Any) -> Any:
        return fail_once(look(order))

    with pytest.raises(
        WorkflowDefinitionError, match=r"'looking' looks at its input \(it looks at 'order'\); give an ex"
    ):
        flows.describe(looking)


def _only(step: Any) -> Any:
    @workflow(name=f"only-{step.name}")
    def only(*args: Any) -> Any:
        return step(*args)

    return only


def test_what_ends_with_a_transactional_step_wakes_whoever_waits_for_it_and_makes_room(ledger: Holdfast) -> None:
    @workflow(limit=1)
    def booking(number: int) -> Any:
        return book(number)

    @workflow
    def both(number: int) -> Any:
        return [booking(number), booking(number + 1)]

    run, worker = ledger.workflows.start(both, 1), ledger.workflows.worker()
    worker.run_once()
    worker.close()
    assert run.status is S.SUCCEEDED
    assert len(booked(ledger)) == 2
