"""`hold.workflows.store`: workflows and stages as models, read and written with optimistic locks.

A stage that is stored here is a step of its workflow like any other: what follows from it happens in the same
transaction, and every worker sees it.
"""

from __future__ import annotations

from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any

from holdfast.backends.open import open_store
from holdfast.errors import ConcurrencyError, ConfigurationError, Conflict, StageNotFoundError, WorkflowNotFoundError
from holdfast.machine.run import Advance, Missing
from holdfast.machine.workflow import WorkflowStatus
from holdfast.store.port import Change, Insert, Store
from holdfast.workflows.control import settled
from holdfast.workflows.following import followed
from holdfast.workflows.messages import Message
from holdfast.workflows.model import Workflow
from holdfast.workflows.patience import Patience
from holdfast.workflows.queue import WorkflowQueue
from holdfast.workflows.records import KINDS, PROCESSED, STAGE, ProcessedRecord, WorkflowRecord
from holdfast.workflows.run import Rows, Run
from holdfast.workflows.settling import WAKE
from holdfast.workflows.stage import StageExecution
from holdfast.workflows.storing import phase_of, put_stage, workflow_of

if TYPE_CHECKING:
    from holdfast.workflows.workflows import Workflows


class WorkflowStore:
    """The workflows of one store. Made of `hold.workflows`, of a store, or of a URL; without any, of the
    `database_url` that the configuration has."""

    def __init__(self, workflows: Workflows | Store | str | None = None, *, config: Any = None) -> None:
        from holdfast.workflows.workflows import Workflows

        if not isinstance(workflows, Workflows):
            store = _opened(workflows, config) if workflows is None or isinstance(workflows, str) else workflows
            workflows = Workflows(store, config=config)
        self.workflows = workflows
        self._store = workflows.records

    def store(self, workflow: Workflow) -> Workflow:
        """Keep a new workflow, which begins when a StartWorkflow is pushed. Raises WorkflowDefinitionError."""
        self.workflows.keep(workflow)
        workflow.version = 1
        return workflow

    def retrieve(self, id: str) -> Workflow:
        """A workflow with its stages and tasks as they stand. Raises WorkflowNotFoundError."""
        return self.workflows.workflow(id)

    def get_stage(self, stage_id: str) -> StageExecution:
        """A stage by its id, with the workflow that it is part of. Raises StageNotFoundError."""
        record = self._store.get(STAGE, [stage_id])[0]
        if record is not None:
            return self.retrieve(record.workflow).stage_by_id(stage_id)
        for at in (at for at, sign in enumerate(stage_id) if sign == "."):  # nothing has happened to it yet
            try:
                return self.retrieve(stage_id[:at]).stage_by_id(stage_id)
            except WorkflowNotFoundError:
                continue
        raise StageNotFoundError(f"there is no stage {stage_id!r}; a stage's id is its workflow's, a dot, its ref_id")

    def store_stage(self, stage: StageExecution, expected_phase: WorkflowStatus | str | None = None) -> None:
        """Store a stage, if nobody has changed it since it was read and, where a phase is given, it is in it.

        Its version is raised. Raises ConcurrencyError with what was expected and what was found,
        InvalidStateTransitionError, and WorkflowNotFoundError.
        """
        with self.transaction() as transaction:
            transaction.store_stage(stage, expected_phase)

    def transaction(self, queue: WorkflowQueue | None = None) -> WorkflowTransaction:
        """Stages, messages and marks that are stored together, when the block ends, or not at all."""
        return WorkflowTransaction(self.workflows, self.workflows.queue if queue is None else queue)

    def is_message_processed(self, message_id: str) -> bool:
        return self._store.get(PROCESSED, [message_id])[0] is not None


class WorkflowTransaction:
    """One transaction. Nothing is written before the block ends; an exception in it leaves everything as it was."""

    def __init__(self, workflows: Workflows, queue: WorkflowQueue) -> None:
        self._workflows = workflows
        self._store = workflows.records
        self._queue = queue
        self._stages: dict[str, list[tuple[StageExecution, WorkflowStatus | None]]] = {}
        self._pushed: list[tuple[Message, float | timedelta | None]] = []
        self._marks: dict[str, ProcessedRecord] = {}
        self._is_open = False

    def store_stage(self, stage: StageExecution, expected_phase: WorkflowStatus | str | None = None) -> None:
        """As `WorkflowStore.store_stage`; what it raises, the end of the block raises."""
        self._check_open()
        self._stages.setdefault(workflow_of(stage), []).append((stage, phase_of(expected_phase)))

    def push_message(self, message: Message, delay: float | timedelta | None = None) -> None:
        """Put a message into the queue, unless one of that id is there or was handled."""
        self._check_open()
        self._pushed.append((message, delay))

    def mark_message_processed(self, *, message_id: str, handler_type: str, execution_id: str) -> bool:
        """Take a message's id; False: it is taken already. Who loses a race for it gets ConcurrencyError at the end."""
        self._check_open()
        if message_id in self._marks or self._store.get(PROCESSED, [message_id])[0] is not None:
            return False
        now = self._store.now()
        self._marks[message_id] = ProcessedRecord(message_id, 1, None, execution_id, handler_type, now)
        return True

    def __enter__(self) -> WorkflowTransaction:
        self._is_open = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_open = False
        if error is None:
            self._commit()

    def _check_open(self) -> None:
        if not self._is_open:
            raise RuntimeError(
                "nothing is stored outside of the transaction's block; use `with store.transaction(queue) as txn:` and "
                "call txn in it"
            )

    def _commit(self) -> None:
        patience = Patience(self._workflows.configs.handler, self._workflows.clock)
        while True:
            marks: list[Change] = [Insert(PROCESSED, one) for one in self._marks.values()]
            steps = [self._step(id) for id in self._stages]
            own = [change for _, _, changes, _, _ in steps for change in changes]
            changes = [*marks, *own, *self._queue.changes(self._pushed)]
            if not changes:
                return
            try:
                others = followed(self._store, self._workflows.blueprints, [(run, step) for run, step, *_ in steps])
                self._store.commit([*changes, *others.changes], wake=WAKE)
            except Conflict as conflict:
                taken = [id for id in self._marks if self._store.get(PROCESSED, [id])[0] is not None]
                if taken or not patience.lost():
                    story = f"message {taken[0]} was handled by somebody else" if taken else str(conflict)
                    raise ConcurrencyError(f"{story}; nothing of the transaction was stored") from conflict
                continue  # something else of a workflow has changed; the stages are judged anew
            for run, step, _, record, rows in steps:
                run.stored(record, rows)
                self._raise_versions(run)
                self._workflows.was_stored(run, step, record)
            return

    def _step(self, id: str) -> tuple[Run, Advance, list[Change], WorkflowRecord, Rows]:
        """What storing these stages of one workflow comes to."""
        needed: dict[str, None] = {}
        while True:
            run = self._workflows.run_of(id)
            run.read(self._store, needed)
            step = run.advance(self._store.now())
            try:
                for stage, phase in self._stages[id]:
                    put_stage(self._store, run, step, stage, phase)
                more = settled(self._store, run, step)
                if run.state.status.is_complete:
                    more += self._workflows.ending(run, step)
            except Missing as missing:
                needed |= dict.fromkeys(missing.refs)
                continue
            changes, record, rows = run.changes(step)
            return run, step, [*changes, *more], record, rows

    def _raise_versions(self, run: Run) -> None:
        for stage, _ in self._stages[run.id]:
            stored = run.as_stored(stage.ref_id)
            assert stored is not None
            stage.version = stored.version
            vars(stage)["status"] = WorkflowStatus(stored.status)
            if stage._workflow is not None:  # its other half
                stage._workflow.version = run.record.version


def _opened(url: str | None, config: Any) -> Store:
    from holdfast.workflows.configs import Configs

    place = url or Configs.of(config).resilience.database_url
    if place is None:
        raise ConfigurationError("which store? Give a URL or a store, or set database_url (HOLDFAST_DATABASE_URL)")
    return open_store(place, kinds=KINDS)
