"""Something of everything in a store, with texts of the caller's choice wherever a text can be."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from holdfast import Breaker, Holdfast, Retry, Saga, Step, consecutive, task, workflow
from holdfast.access.rights import ROLES, Identity, Role
from holdfast.audit.event import AuditEvent
from holdfast.core.outcome import Evidence
from holdfast.errors import HoldfastError
from holdfast.failover.endpoint import Endpoint
from holdfast.failover.pool import EndpointPool
from holdfast.letters.scope import LetterFilter
from holdfast.server.trail import Trail
from holdfast.store.codec import clean_text
from holdfast.workflows.model import Workflow
from holdfast.workflows.serving import Serving
from holdfast.workflows.stage import StageExecution
from holdfast.workflows.task_run import TaskExecution
from tests.console.holding import PASSWORD

PLAIN: Final = ("payments", "stock.reserve", "mail", "search", "invoices")
"""Names as programs have them."""


class Seeds:
    """Puts things into the store of a Holdfast. `made` counts them: a text that is refused is left out."""

    def __init__(self, hold: Holdfast, texts: Sequence[str] = PLAIN) -> None:
        self.hold = hold
        self.texts = texts
        self.made: Counter[str] = Counter()

    def everything(self) -> Counter[str]:
        """Something of everything."""
        self.guards()
        self.pools()
        self.letters()
        self.bulk()
        self.outbox()
        self.sagas()
        self.workflows()
        self.schedules()
        self.workers()
        self.access()
        self.trail()
        return self.made

    def crowded(self) -> None:
        """One thing of each kind with every text in it."""
        hold, names = self.hold, list(dict.fromkeys(filter(str.strip, map(clean_text, self._cut(50)))))
        hold.add_pool("crowded", EndpointPool([Endpoint(name, name, region=name) for name in names]))
        payload = dict(zip(names, self.texts, strict=False))
        hold.letters.create("crowded", "X", error_message="x", request_data=payload)
        stages = [
            StageExecution.create(
                "plain", name, name, requisite_stage_ref_ids=names[at - 10 : at - 9] if at >= 10 else [],
                tasks=[TaskExecution.create(name, "fail")],
            )
            for at, name in enumerate(names)
        ]  # fmt: skip
        hold.workflows.start(Workflow.create("crowded", "crowded", stages))
        hold.saga(Saga("crowded", [Step(name, "book", compensation="unbook") for name in names]))
        with hold.sessions.begin() as session:
            hold.sagas.start(session, "crowded", {"text": "x"}, subject_id="crowded")
            hold.outbox.put(session, "send", {"text": names}, target="crowded", subject_id="crowded")
        Serving(hold.store, names, names, lambda: {"host": "crowded", "pid": 7}).declare(names)

    def guards(self) -> None:
        """Guards whose calls have failed, with open breakers and letters."""

        def make(text: str) -> None:
            guard = self.hold.guard(text, Retry(attempts=1), Breaker(consecutive(1), open_for=600), dead_letter=True)

            @guard
            def call(argument: str) -> None:
                raise RuntimeError(text)

            try:
                call(text)
            except RuntimeError:
                pass

        self._each("guards", self._cut(100), make)

    def pools(self) -> None:
        """Pools with one endpoint that failed."""

        def make(text: str) -> None:
            pool = EndpointPool(
                [Endpoint(text, text, region=text), "other"], breaker=Breaker(consecutive(1), open_for=600)
            )
            self.hold.add_pool(text, pool)
            pool.settle(pool.admit(), Evidence.FAILURE, RuntimeError(text))

        self._each("pools", self._cut(100), make)

    def letters(self) -> None:
        """Letters with the text in every field."""

        def make(text: str) -> None:
            name = text[:100]
            (letter,) = self.hold.letters.create_many([{
                "domain": name, "failure_type": name, "entity_type": name, "entity_id": name, "error_code": name,
                "error_message": text, "request_data": {"function": name, "args": {name: text}},
                "response_data": {name: [text, {name: text}]}, "metadata": {name: text}, "snapshot_data": {name: text},
                "next_action_hint": text, "max_retries": 3,
            }])  # fmt: skip
            if self.made["letters"] % 3 == 0:
                self.hold.letters.mark_as_resolved(letter.id, "manual", text[:500], name)

        self._each("letters", self.texts, make)

    def bulk(self) -> None:
        """Bulk operations, of which some are done."""

        def make(text: str) -> None:
            self.hold.letters.bulk.start(
                LetterFilter(domain=text[:60]), "resolve", requested_by=text[:60], reason=text[:200]
            )

        self._each("bulk", self.texts[:30], make)
        self.hold.letters.worker().run_once()

    def outbox(self) -> None:
        """Entries that wait, and some that were given up."""
        hold = self.hold

        @hold.operation("send", permanent=(RuntimeError,), sensitive=False)
        def send(text: str) -> str:
            raise RuntimeError(text)

        def make(text: str) -> None:
            with hold.sessions.begin() as session:
                hold.outbox.put(session, "send", {"text": text}, target=text[:60] or "x", subject_id=text[:60] or "x")

        self._each("outbox", self.texts, make)
        _run(hold.runner().run_once())

    def sagas(self) -> None:
        """Sagas that had to be undone."""
        hold = self.hold

        @hold.operation("book", sensitive=False)
        def book(text: str) -> str:
            return text

        @hold.operation("unbook", sensitive=False)
        def unbook(text: str) -> str:
            return text

        def make(text: str) -> None:
            hold.saga(
                Saga(text, (Step(text, "book", compensation="unbook"), Step(f"{text[:50]}.", "send", pivot=True)))
            )
            with hold.sessions.begin() as session:
                hold.sagas.start(session, text, {"text": text}, subject_id=text)

        self._each("sagas", self._cut(50), make)
        for _ in range(3):
            _run(hold.runner().run_once())

    def workflows(self) -> None:
        """Workflows that failed, with the text as name, as input and as error."""
        hold = self.hold

        @task(retry=Retry(attempts=1))
        def fail(text: str) -> str:
            raise RuntimeError(text)

        @workflow
        def failing(text: str) -> Any:
            return fail(text)

        hold.workflows.add(failing)

        def make(text: str) -> None:
            if self.made["workflows"] % 4 == 0:
                hold.workflows.start("failing", text=text)
            named = text[:100]
            tasks = [TaskExecution.create(named, "fail")]
            stages = [
                StageExecution.create("plain", named, named, tasks=tasks, context={"text": text}),
                StageExecution.create(
                    "plain", named, f"{named}.", requisite_stage_ref_ids=[named],
                    tasks=[TaskExecution.create(named, "fail")],
                ),
            ]  # fmt: skip
            hold.workflows.start(Workflow.create(named, named, stages))

        self._each("workflows", self.texts, make)
        worker = hold.workflows.worker()
        worker.run_once()
        worker.close()

    def schedules(self) -> None:
        """Schedules, every other one paused."""

        def make(text: str) -> None:
            paused = self.made["schedules"] % 2 == 1
            self.hold.workflows.schedules.add(
                text, "failing", {"text": text}, cron="0 3 * * *", paused=paused, by=text[:50]
            )

        self._each("schedules", self._cut(100), make)

    def workers(self) -> None:
        """Workers of other machines, by the word of their rows."""

        def make(text: str) -> None:
            Serving(self.hold.store, [text], [text], lambda: {"host": text, "pid": 7}).declare([text])

        self._each("workers", self._cut(100), make)

    def access(self) -> None:
        """Users and tokens."""
        access = self.hold.access

        def make(text: str) -> None:
            access.create_token(text, scopes=["*:read"], by=text)

        self._each("tokens", self._cut(80), make)

        def add(text: str) -> None:
            access.add_user(text, PASSWORD, Role.VIEWER, by="seeds")

        self._each("users", self._cut(80), add)

    def trail(self) -> None:
        """Acts in the audit trail."""
        trail = Trail(self.hold)

        def make(text: str) -> None:
            name = clean_text(text)[:60] or "x"
            self.hold.audit.append(
                AuditEvent(event_type=name, subject_ref=name, payload={name: clean_text(text)[:500]})
            )
            identity = Identity(text[:100], ROLES[Role.ADMIN], "session")
            trail.acted(identity, "letters.replay", "letters:operate", {"id": text[:100]}, text)

        self._each("trail", self.texts, make)

    def _cut(self, longest: int) -> list[str]:
        return list(dict.fromkeys(text[:longest] for text in self.texts if text.strip()))

    def _each(self, what: str, texts: Iterable[str], make: Callable[[str], object]) -> None:
        for text in texts:
            try:
                make(text)
            except (HoldfastError, ValueError):
                continue  # a name that is refused can break nothing
            self.made[what] += 1


def _run(work: Coroutine[Any, Any, object]) -> None:
    # Playwright keeps an event loop in this thread.
    with ThreadPoolExecutor(1) as pool:
        pool.submit(asyncio.run, work).result()
