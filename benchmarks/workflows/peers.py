"""The contenders of the peers' environment: dbos and stabilize, each as its documentation says, in one process."""

import logging
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from time import monotonic, sleep
from typing import Any

from dbos import DBOS

from benchmarks.bench import Makers
from benchmarks.outbox.setup import Watched
from benchmarks.workflows.rows import STEPS
from benchmarks.workflows.setup import Setup
from benchmarks.workflows.timing import timed

PATIENCE_S = 600.0


class Dbos:
    """Workflows that call steps; those of a crowd, and the branches of a fan, are started one by one."""

    label = "dbos"

    def __init__(self, setup: Setup, store: str) -> None:
        self.setup = setup
        DBOS(config={"name": "bench", "system_database_url": setup.url(store, "dbos"), "log_level": "CRITICAL"})

        @DBOS.step()
        def step(number: int) -> int:
            return number + 1

        @DBOS.workflow()
        def chain(number: int, steps: int) -> int:
            for _ in range(steps):
                number = step(number)
            return number

        @DBOS.workflow()
        def fan(number: int, width: int) -> int:
            first = step(number)
            branches = [DBOS.start_workflow(chain, first, 1) for _ in range(width)]
            return sum(branch.get_result() for branch in branches)

        self._chain, self._fan = chain, fan
        DBOS.launch()

    def _run(self, steps: int, done: int) -> int:
        assert self._chain(0, steps) == steps
        return done

    def chain(self) -> Watched:
        steps = self.setup.chain
        return timed(lambda: self._run(steps, steps))

    def latency(self) -> Watched:
        return timed(lambda: self._run(STEPS, 1), repeat=10)

    def crowd(self) -> Watched:
        def one() -> int:
            runs = [DBOS.start_workflow(self._chain, 0, STEPS) for _ in range(self.setup.crowd)]
            for run in runs:
                assert run.get_result() == STEPS
            return len(runs) * STEPS

        return timed(one)

    def fan(self) -> Watched:
        def one() -> int:
            assert self._fan(0, 100) == 200
            return 1

        return timed(one)

    def start(self) -> Watched:
        def one() -> int:
            runs = [DBOS.start_workflow(self._chain, 0, 1) for _ in range(20)]
            for run in runs:
                run.get_result()
            return len(runs)

        return timed(one)


class Stabilize:
    """Stages of one task each, in its own threads, with the defaults of its configuration."""

    label = "stabilize"

    def __init__(self, setup: Setup, store: str) -> None:
        import stabilize
        from stabilize import QueueProcessor, TaskRegistry

        logging.disable(logging.CRITICAL)
        self.setup = setup
        url = setup.url(store, "stabilize")
        if store == "sqlite":
            self._store: Any = stabilize.SqliteWorkflowStore(url, create_tables=True)
            self._queue: Any = stabilize.SqliteQueue(url)
            self._queue._create_table()
        else:
            command = [sys.executable, "-c", "from stabilize.cli.main import main; main()", "mg-up", "--db-url", url]
            subprocess.run(command, check=True, capture_output=True)
            self._store = stabilize.PostgresWorkflowStore(url)
            self._queue = stabilize.PostgresQueue(url)

        class Step(stabilize.Task):
            def execute(self, stage: Any) -> Any:
                return stabilize.TaskResult.success(outputs={"number": stage.context.get("number", 0) + 1})

        registry = TaskRegistry()
        registry.register("step", Step)
        self._module = stabilize
        self._processor = QueueProcessor(self._queue, store=self._store, task_registry=registry)
        self._orchestrator = stabilize.Orchestrator(self._queue, store=self._store)
        self._processor.start()

    def _workflow(self, before: Callable[[int], set[str]], number: int) -> Any:
        module = self._module
        stages = [
            module.StageExecution(
                ref_id=str(at), type="step", name=str(at), requisite_stage_ref_ids=before(at),
                tasks=[self._task()],
            )
            for at in range(number)
        ]  # fmt: skip
        return module.Workflow.create(application="bench", name="chain", stages=stages)

    def _task(self) -> Any:
        create = self._module.TaskExecution.create
        return create(name="step", implementing_class="step", stage_start=True, stage_end=True)

    def _run(self, workflows: list[Any]) -> None:
        for workflow in workflows:
            self._store.store(workflow)
            self._orchestrator.start(workflow)
        give_up = monotonic() + PATIENCE_S
        for workflow in workflows:
            while not (found := self._store.retrieve(workflow.id)).status.is_complete and monotonic() < give_up:
                sleep(0.01)
            assert found.status.name == "SUCCEEDED", found.status

    def _chained(self, number: int, steps: int) -> int:
        self._run([self._workflow(lambda at: {str(at - 1)} if at else set(), steps) for _ in range(number)])
        return number * steps

    def chain(self) -> Watched:
        return timed(lambda: self._chained(1, min(20, self.setup.chain)))

    def latency(self) -> Watched:
        return timed(lambda: self._chained(1, STEPS) // STEPS)

    def crowd(self) -> Watched:
        return timed(lambda: self._chained(5, STEPS))


def contenders(setup: Setup, store: str) -> Makers:
    return {store: {peer.label: partial(peer, setup, store) for peer in (Dbos, Stabilize)}}
