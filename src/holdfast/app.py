"""`Holdfast(url)`: one object that puts the parts together over one store."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar, overload
from weakref import WeakSet

from holdfast.backends.open import open_store
from holdfast.core.check import check_queues
from holdfast.core.clock import SYSTEM_CLOCK, Clock
from holdfast.errors import ConfigurationError, MissingExtra, PolicyError
from holdfast.store.port import Store
from holdfast.telemetry.hub import Hub, default_hub

if TYPE_CHECKING:  # whoever names `Holdfast` has not opened one; guards and letters do without SQLAlchemy
    from datetime import timedelta

    from sqlalchemy.orm import Session, sessionmaker

    from holdfast.access.access import Access
    from holdfast.access.serving import ServerPolicy
    from holdfast.audit.sink import DatabaseAuditSink
    from holdfast.config import Settings
    from holdfast.failover.pool import EndpointPool
    from holdfast.failover.rotation import ProxyRotator
    from holdfast.letters.capture import DeadLetter
    from holdfast.letters.held import HeldGuard
    from holdfast.letters.maintenance import Schedule
    from holdfast.letters.overflow import Capacity
    from holdfast.letters.recovery import RecoveryPolicy
    from holdfast.letters.worker import WorkerPolicy
    from holdfast.outbox.erasure import Erasure
    from holdfast.outbox.inbox import Inbox
    from holdfast.outbox.joint import JointWorker
    from holdfast.outbox.local import LocalStep
    from holdfast.outbox.outbox import Outbox
    from holdfast.outbox.publishing import Publishers
    from holdfast.outbox.resolver import ResolverRegistry
    from holdfast.outbox.runner import SagaRunner
    from holdfast.outbox.sagas.sagas import Saga, Sagas
    from holdfast.outbox.tables import OutboxTables
    from holdfast.outbox.works import Works
    from holdfast.workflows.workflows import Workflows

_NO_OUTBOX: Final = "the outbox needs SQLAlchemy; run: pip install 'holdfast[sql]'"
F = TypeVar("F", bound=Callable[..., Any])
P = TypeVar("P", bound="EndpointPool | ProxyRotator")


class Holdfast:
    """Guards, dead letters, shared breakers and, on a SQL database, outbox, sagas and audit trail over one store.

    `url` is `sqlite:///holdfast.db`, `postgresql://…`, `mariadb://…`, `redis://…` or `memory://`, or a store of your
    own. Nothing is opened until it is needed. `capacity` bounds the dead letters; failures that the store cannot take
    go to the file `spool`. `quorum` processes must see an outage before all of them open their breakers; without
    `background` they are shared only when `breakers.sharing.sync()` is called. `recovery` and `schedule` say how
    letters drain and age. With an `audit_key` nobody who has not got it can forge the audit trail.
    `source` names this program in the messages that it publishes, `code_version` its code in the workflows that it
    starts. `workflows` is how workflows run: a `ResilienceConfig`, a `HandlerConfig`, an `EngineConfig`, or several;
    what is not given is as the environment says. `webhook_reach` lists where webhooks and http tasks may go at
    most.
    """

    def __init__(
        self,
        url: str | Store,
        *,
        capacity: Capacity | None = None,
        spool: str | os.PathLike[str] | None = None,
        quorum: int = 1,
        background: bool = True,
        recovery: RecoveryPolicy | None = None,
        schedule: Schedule | None = None,
        audit_key: bytes | None = None,
        source: str | None = None,
        code_version: str | None = None,
        clock: Clock | None = None,
        telemetry: Hub | None = None,
        workflows: Any = None,
        webhook_reach: Sequence[str] = (),
        **store_options: Any,
    ) -> None:
        from holdfast.breakers.breakers import Breakers
        from holdfast.kinds import KINDS
        from holdfast.letters.letters import Letters
        from holdfast.workflows.letter_route import ENTITY, FUNCTION, WorkflowRoute

        if not isinstance(url, str) and not hasattr(url, "commit"):
            raise TypeError(f"url is {url!r}; give a text such as 'sqlite:///holdfast.db', or a Store")
        self.store = open_store(url, clock=clock, kinds=KINDS, **store_options) if isinstance(url, str) else url
        self._given_clock = clock
        self._clock: Clock = SYSTEM_CLOCK if clock is None else clock
        self.telemetry = default_hub() if telemetry is None else telemetry
        self.breakers = Breakers(self.store, clock=clock, hub=self.telemetry, quorum=quorum, background=background)
        self.letters = Letters(
            self.store, clock, hub=self.telemetry, capacity=capacity, spool=spool, breakers=self.breakers,
            recovery=recovery, schedule=schedule,
        )  # fmt: skip
        self.letters.handlers.register_everywhere(FUNCTION, WorkflowRoute(lambda: self.workflows), ENTITY)
        self._guards: dict[str, HeldGuard] = {}
        self.pools: dict[str, EndpointPool | ProxyRotator] = {}
        """Endpoint pools and rotators that the console shows; `add_pool` names one."""
        self._lock = threading.Lock()
        self._audit_key = audit_key
        self._source = source
        self._code_version = code_version
        self._workflow_config = workflows
        self._webhook_reach = tuple(webhook_reach)
        self._access: Access | None = None
        self._works: Works | None = None
        self._workflows: Workflows | None = None
        self._settings: Settings | None = None
        self._workers: WeakSet[JointWorker] = WeakSet()

    @classmethod
    def from_settings(cls, settings: Settings | None = None, **options: Any) -> Holdfast:
        """As the settings say, those of the file and the environment unless given; `options` go before them.

        A guard that the settings name is made when it is asked for by its name alone; one that code makes is as the
        code says. Raises ConfigurationError where no store is named.
        """
        from holdfast.config import Settings

        settings = Settings.load() if settings is None else settings
        if settings.url is None and "url" not in options:
            raise ConfigurationError(
                'no store is named; set HOLDFAST_URL, or url in holdfast.toml: url = "sqlite:///holdfast.db"'
            )
        known = settings.options()
        if known["workflows"] is not None and options.get("workflows") is not None:
            from holdfast.workflows.configs import Configs

            options["workflows"] = Configs.of(options["workflows"], others=known["workflows"])
        hold = cls(**{**known, **options})
        hold._settings = settings
        return hold

    @property
    def serving(self) -> ServerPolicy:
        """How `serve` and `create_app` do it where they are not told: as the settings say, if it was made from any."""
        from holdfast.access.serving import ServerPolicy

        return ServerPolicy() if self._settings is None else self._settings.server

    @property
    def guards(self) -> dict[str, HeldGuard]:
        """The guards made so far, by name."""
        return dict(self._guards)

    def guard(
        self,
        name: str,
        *policies: Any,
        dead_letter: bool | DeadLetter = False,
        shared: bool = True,
        **options: Any,
    ) -> HeldGuard:
        """A guard whose breaker all processes on the store share, and whose final failures are kept.

        With a name alone: the guard that was made under it, or that the settings describe. `options` are those of
        `Guard`; `shared=False` keeps the breaker to this process. Raises PolicyError for a name that is taken, or one
        that nothing is known of.
        """
        from holdfast.letters.capture import DeadLetter
        from holdfast.letters.held import HeldGuard

        with self._lock:
            made = self._guards.get(name)
            if not policies and not options and dead_letter is False:
                if made is not None:
                    return made
                configured = None if self._settings is None else self._settings.policies(name)
                if configured is None:
                    raise PolicyError(
                        f"there is no guard {name!r} yet; name its policies: hold.guard({name!r}, Retry())"
                    )
                policies, own = tuple(configured[0]), configured[1]
                dead_letter, shared = own.get("dead_letter", False), own.get("shared", True)
            if made is not None:
                raise PolicyError(f"there is a guard {name!r} already; use hold.guard({name!r}) or made.replace(...)")
            options.setdefault("clock", self._clock)
            options.setdefault("telemetry", self.telemetry)
            kept = DeadLetter() if dead_letter is True else dead_letter or None
            made = HeldGuard(
                name, *policies, box=self.letters.box, handlers=self.letters.handlers, dead_letter=kept,
                share=self.breakers.share if shared else None, **options,
            )  # fmt: skip
            self._guards[name] = made
            return made

    def add_pool(self, name: str, pool: P) -> P:
        """Let the console and the API show an `EndpointPool`, or a `ProxyRotator`, under a name.

        Raises PolicyError for a name that another one has.
        """
        if self.pools.setdefault(name, pool) is not pool:
            raise PolicyError(f"there is a pool {name!r} already; give this one another name")
        return pool

    @property
    def access(self) -> Access:
        """Who may use the API and the console."""
        from holdfast.access.access import Access

        with self._lock:
            if self._access is None:
                self._access = Access(self.store, self._given_clock, hub=self.telemetry)
            return self._access

    @property
    def works(self) -> Works:
        """Everything that finishes what must happen; made when it is first asked for.

        Raises ConfigurationError for a store that is no SQL database, or is one in memory.
        """
        with self._lock:
            if self._works is None:
                self._works = self._make_works()
            return self._works

    def _make_works(self) -> Works:
        try:
            from holdfast.outbox.works import Works
        except ModuleNotFoundError as error:
            raise MissingExtra(_NO_OUTBOX) from error
        return Works(
            self.store, hub=self.telemetry, clock=self._given_clock, audit_key=self._audit_key, source=self._source,
            webhook_reach=self._webhook_reach, told=self._wake_workers,
        )  # fmt: skip

    @property
    def outbox(self) -> Outbox:
        """External calls that must happen, written in the caller's own transactions."""
        return self.works.outbox

    @property
    def sagas(self) -> Sagas:
        """External calls that together either happen or are undone."""
        return self.works.sagas

    @property
    def audit(self) -> DatabaseAuditSink:
        """The trail of what came of them."""
        return self.works.audit

    @property
    def publishers(self) -> Publishers:
        """The brokers that `outbox.publish` reaches, by name."""
        return self.works.publishers

    @property
    def resolvers(self) -> ResolverRegistry:
        """The external systems that hold personal data, by name."""
        return self.works.resolvers

    @property
    def sessions(self) -> sessionmaker[Session]:
        """Sessions on the store's database, for programs without their own."""
        return self.works.sessions

    @property
    def tables(self) -> OutboxTables:
        """Handles of the outbox's tables."""
        return self.works.tables

    @overload
    def operation(self, name: F) -> F: ...
    @overload
    def operation(self, name: str | None = None, **options: Any) -> Callable[[F], F]: ...
    def operation(self, name: Any = None, **options: Any) -> Any:
        """Register a function as an operation of the outbox; an entry's payload becomes its arguments.

        `options` are those of `Operation`.
        """
        return self.works.operation(name, **options)

    @property
    def workflows(self) -> Workflows:
        """Durable workflows; made when it is first asked for.

        Raises ConfigurationError for a variable of the environment, or a configuration, that cannot be.
        """
        if self._workflows is None:
            from holdfast.workflows.workflows import Workflows

            with self._lock:
                if self._workflows is None:
                    self._workflows = Workflows(
                        self.store, guard=self.guard, sessions=lambda: self.works.sessions,
                        letters=self.letters.handlers, telemetry=self.telemetry, code_version=self._code_version,
                        clock=self._clock, config=self._workflow_config, reach=self._webhook_reach,
                        told=self._wake_workers,
                    )  # fmt: skip
        return self._workflows

    def _wake_workers(self) -> None:
        """Something was registered that a worker of this program may have been without."""
        with self._lock:
            workers = [*self._workers]
        for worker in workers:
            worker.wake()

    def saga(self, saga: Saga) -> Saga:
        """Make the definition of a saga known."""
        return self.works.saga(saga)

    def erasure(self, *steps: LocalStep) -> Erasure:
        """Requests to be forgotten or corrected, over these tables of the program's."""
        return self.works.erasure(*steps)

    def inbox(self, consumer: str, *, keep: timedelta | None = None) -> Inbox:
        """The messages that a consumer has seen, kept for 7 days unless `keep` says otherwise."""
        return self.works.inbox(consumer) if keep is None else self.works.inbox(consumer, keep=keep)

    def runner(self, **options: Any) -> SagaRunner:
        """What makes the outbox's calls, one batch at a time; `options` are those of `SagaRunner`."""
        return self.works.runner(**options)

    def worker(
        self,
        policy: WorkerPolicy | None = None,
        *,
        queues: Sequence[str] = ("default",),
        application: str | None = None,
        **options: Any,
    ) -> JointWorker:
        """What drains, retries, tidies up, makes the outbox's calls and runs the tasks of workflows: `start()` it,
        `await arun()`, or `run()`.

        The outbox has its part in it when the program has registered an operation, a publisher or a resolver, and
        workflows when it has registered a task, also while it works: one that can make no call must not take what
        others can do. `queues` are for both, `options` (those of `SagaRunner`) for the outbox. `application`
        ("shop.app:hold") is where other processes find this program, for tasks that run in processes of their own.
        Raises PolicyError where no queue is named, and TypeError for an option that there is not.
        """
        from holdfast.outbox.joint import JointWorker, Part

        check_queues("worker.queues", queues)
        if options:
            try:
                from holdfast.outbox.runner import check_options
            except ModuleNotFoundError as error:
                raise MissingExtra(_NO_OUTBOX) from error
            check_options("hold.worker", options)
        if policy is None and self._settings is not None:
            policy = self._settings.worker

        def find_outbox() -> Part | None:
            works = self._works
            return works.worker(queues=queues, **options) if works is not None and works.has_work else None

        def find_workflows() -> Part | None:
            workflows = self._workflows
            if workflows is None or not workflows.has_work:
                return None
            return workflows.worker(queues=queues, application=application)

        made: JointWorker
        letters = self.letters.worker(policy, pins=self.breakers.clear_expired_pins, parts=lambda: made.take_up())
        made = JointWorker(letters, {"outbox": find_outbox, "workflows": find_workflows})
        with self._lock:
            self._workers.add(made)
        return made

    def close(self) -> None:
        """Stop what runs in the background and let go of the store."""
        self.letters.close()
        self.breakers.close()
        if self._works is not None:
            self._works.close()
        if self._workflows is not None:
            self._workflows.close()
        self.store.close()

    def __enter__(self) -> Holdfast:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Holdfast {self.store.url}>"
