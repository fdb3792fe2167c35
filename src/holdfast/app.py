"""`Holdfast(url)`: one object that puts the parts together over one store."""

from __future__ import annotations

import os
import threading
from typing import Any, Final

from holdfast.backends.open import open_store
from holdfast.breakers.breakers import Breakers
from holdfast.core.clock import SYSTEM_CLOCK, Clock
from holdfast.errors import PolicyError
from holdfast.letters.capture import DeadLetter
from holdfast.letters.held import HeldGuard
from holdfast.letters.letters import Letters
from holdfast.letters.maintenance import Schedule
from holdfast.letters.overflow import Capacity
from holdfast.letters.recovery import RecoveryPolicy
from holdfast.letters.worker import Worker, WorkerPolicy
from holdfast.machine.breaker_record import BREAKER
from holdfast.machine.bulk import BULK
from holdfast.machine.dead_letter import LETTER, SUMMARY
from holdfast.machine.drain import DOMAIN
from holdfast.store.lease import LEASE
from holdfast.store.port import Store
from holdfast.store.record import Kind
from holdfast.telemetry.hub import Hub, default_hub

KINDS: Final[tuple[Kind[Any], ...]] = (LETTER, SUMMARY, BULK, DOMAIN, BREAKER, LEASE)
"""Everything that Holdfast stores."""


class Holdfast:
    """Guards, dead letters and shared breakers over one store.

    `url` is `sqlite:///holdfast.db`, `postgresql://…`, `mariadb://…`, `redis://…` or `memory://`, or a store of your
    own. Nothing is opened until it is needed. `capacity` bounds the dead letters; failures that the store cannot take
    go to the file `spool`. `quorum` processes must see an outage before all of them open their breakers; without
    `background` they are shared only when `breakers.sharing.sync()` is called. `recovery` and `schedule` say how
    letters drain and age.
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
        clock: Clock | None = None,
        telemetry: Hub | None = None,
        **store_options: Any,
    ) -> None:
        self.store = open_store(url, clock=clock, kinds=KINDS, **store_options) if isinstance(url, str) else url
        self._clock: Clock = SYSTEM_CLOCK if clock is None else clock
        self.telemetry = default_hub() if telemetry is None else telemetry
        self.breakers = Breakers(self.store, clock=clock, hub=self.telemetry, quorum=quorum, background=background)
        self.letters = Letters(
            self.store, clock, hub=self.telemetry, capacity=capacity, spool=spool, breakers=self.breakers,
            recovery=recovery, schedule=schedule,
        )  # fmt: skip
        self._guards: dict[str, HeldGuard] = {}
        self._lock = threading.Lock()

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

        With a name alone: the guard that was made under it. `options` are those of `Guard`; `shared=False` keeps the
        breaker to this process. Raises PolicyError for a name that is taken, or one that nothing is known of.
        """
        with self._lock:
            made = self._guards.get(name)
            if not policies and not options and dead_letter is False:
                if made is None:
                    raise PolicyError(
                        f"there is no guard {name!r} yet; name its policies: hold.guard({name!r}, Retry())"
                    )
                return made
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

    def worker(self, policy: WorkerPolicy | None = None) -> Worker:
        """What drains, retries and tidies up: `start()` a thread, `await arun()`, or `run()`."""
        return self.letters.worker(policy, pins=self.breakers.clear_expired_pins)

    def close(self) -> None:
        """Stop what runs in the background and let go of the store."""
        self.letters.close()
        self.breakers.close()
        self.store.close()

    def __enter__(self) -> Holdfast:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Holdfast {self.store.url}>"
