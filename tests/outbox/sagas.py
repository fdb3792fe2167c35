"""A shop whose orders are sagas, and two ways to make their calls: by hand, one at a time, and with a runner."""

from __future__ import annotations

from collections import defaultdict
from datetime import timedelta
from typing import Any

import sqlalchemy as sa

from holdfast.audit.sink import DatabaseAuditSink
from holdfast.machine.outbox_entry import ABANDON, FAIL, SUCCEED, Move
from holdfast.outbox.backoff import BackoffPolicy
from holdfast.outbox.entry import OutboxEntry
from holdfast.outbox.functions import NoTarget
from holdfast.outbox.operation import CallContext, Discard, Done, Operation, OperationRegistry, StepEvents
from holdfast.outbox.outbox import Outbox
from holdfast.outbox.runner import SagaRunner
from holdfast.outbox.sagas.sagas import Saga, Sagas, Step
from holdfast.outbox.settle import Settlement
from holdfast.telemetry.events import GuardEvent
from holdfast.telemetry.hub import Hub
from holdfast.testing import ManualClock
from tests.databases import Database

LEASE = timedelta(minutes=5)
QUICK = BackoffPolicy(base_delay=timedelta(seconds=1), max_delay=timedelta(seconds=1))


def order_saga(**options: Any) -> Saga:
    return Saga(
        "order",
        (
            Step("reserve", "reserve", compensation="release"),
            Step("charge", "charge", compensation="refund"),
            Step("ship", "ship", compensation="unship"),
        ),
        **options,
    )


class Shop:
    """An outbox with sagas on a real database. `answers` says what calls answer, `calls` what was called."""

    def __init__(
        self,
        database: Database,
        *definitions: Saga,
        audited: bool = True,
        sensitive: bool = False,
        clock: ManualClock | None = None,
    ) -> None:
        self.database = database
        self.clock = clock or ManualClock()
        self.calls: list[tuple[str, CallContext]] = []
        self.answers: dict[str, list[Any]] = defaultdict(list)
        self.stuck: list[Any] = []
        self.told: list[GuardEvent] = []
        self.hub = Hub()
        self.hub.register(self.told.append)
        self.operations = OperationRegistry(
            *(
                Operation(
                    name=name,
                    call=self._call,
                    targets=NoTarget(),
                    events=StepEvents.of(name),
                    sensitive=sensitive,
                    needs_payload=True,
                )
                for name in ("reserve", "release", "charge", "refund", "ship", "unship", "wrap", "unwrap")
            )
        )
        tables = database.tables
        self.sink = DatabaseAuditSink(
            database.sessions,
            tables.audit_events,
            chain_heads=tables.chain_heads,
            event_types=self.operations.event_types() | Sagas.event_types,
        )
        self.outbox = Outbox(
            database.sessions,
            tables.outbox,
            audit_sink=self.sink if audited else None,
            operations=self.operations,
            clock=self.clock,
        )
        self.sagas = Sagas(self.outbox, *definitions, hub=self.hub, on_stuck=self.stuck.append)

    def _call(self, target: Any, context: CallContext) -> Any:
        name = context.operation
        self.calls.append((name, context))
        answer = self.answers[name].pop(0) if self.answers[name] else Done({"by": name})
        if isinstance(answer, Exception):
            raise answer
        return answer

    @property
    def called(self) -> list[str]:
        return [name for name, _ in self.calls]

    def start(self, saga: Saga | str, data: Any = None, **options: Any) -> Any:
        with self.database.sessions() as session, session.begin():
            return self.sagas.start(session, saga, {"order": 7} if data is None else data, **options)

    def state(self, saga_id: Any) -> str:
        found = self.sagas.get(saga_id)
        assert found is not None
        return str(found.state)

    def steps(self, saga_id: Any) -> dict[str, str]:
        found = self.sagas.get(saga_id)
        assert found is not None
        return {step.name: str(step.state) for step in found.steps}

    def rows(self) -> dict[tuple[str, str], str]:
        """The status of each entry, by step and direction."""
        row = self.database.tables.outbox.c
        with self.database.sessions() as session:
            found = session.execute(sa.select(row.step, row.direction, row.status))
            return {(step, direction): status for step, direction, status in found}

    def is_busy(self) -> bool:
        row = self.database.tables.outbox.c
        with self.database.sessions() as session:
            found = sa.select(sa.func.count()).where(row.status.not_in(["succeeded", "abandoned"]))
            return bool(session.execute(found).scalar())

    def trail(self, subject: str) -> list[str]:
        return [str(event.event_type) for event in self.sink.read(subject)]

    # -- by hand

    def claim(self, *steps: str) -> list[OutboxEntry]:
        """Claim what is due: all of it, which must be the entries of these steps."""
        claimed = list(self.outbox.claim_batch(50, lease=LEASE))
        assert sorted(str(entry.step) for entry in claimed) == sorted(steps)
        return sorted(claimed, key=lambda entry: steps.index(str(entry.step)))

    def settle(self, *outcomes: tuple[OutboxEntry, Move]) -> list[bool]:
        return self.outbox.settle_batch([self.settlement(entry, move) for entry, move in outcomes])

    def settlement(self, entry: OutboxEntry, move: Move) -> Settlement:
        given: dict[str, Any] = {}
        if move is SUCCEED:
            given = {"result": {"by": str(entry.operation)}}
        elif move is ABANDON:
            given = {"last_error": "Refused", "attempts": entry.attempts}
        elif move is FAIL:
            given = {"last_error": "Down", "next_attempt_at": self.clock.wall()}
        return Settlement(entry, move, given, self.operations.is_sensitive(str(entry.operation)))

    def succeed(self, *steps: str) -> None:
        """Claim the entries of these steps, and let them succeed, one by one."""
        for entry in self.claim(*steps):
            assert self.settle((entry, SUCCEED)) == [True]

    def abandon(self, step: str) -> None:
        [entry] = self.claim(step)
        assert self.settle((entry, ABANDON)) == [True]

    # -- with a runner

    def runner(self, **options: Any) -> SagaRunner:
        options.setdefault("backoff", QUICK)
        return SagaRunner(NoTarget(), self.outbox, self.outbox.audit_sink, clock=self.clock, rng=None, **options)

    async def drain(self, runner: SagaRunner | None = None, rounds: int = 200) -> None:
        """Run until nothing is left to call, time passing as it must."""
        runner = runner or self.runner()
        for _ in range(rounds):
            if not await runner.run_once():
                if not self.is_busy():
                    return
                self.clock.advance(2)
        raise AssertionError(f"still busy: {self.rows()}")


REFUSED = Discard("CardDeclined")
