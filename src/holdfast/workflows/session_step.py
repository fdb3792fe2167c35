"""The step of a transactional task: written in the session of its body, apart from all that its worker writes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from holdfast.store.port import Store
from holdfast.workflows.claiming import NO_ROOM
from holdfast.workflows.preparing import Ending, Prepared, Settles
from holdfast.workflows.reporting import Reporter
from holdfast.workflows.run import Run
from holdfast.workflows.runs import Blueprints, Runs
from holdfast.workflows.settling import Settling

MOST_LOST: Final = 50
"""How often it is decided anew: each time another one was stored, and to give up is to run the body again."""


class SessionStep:
    """`strict` as for `Runs`; `owner` says whose the item is. `over` hears of a workflow that has ended by it, `done`
    of every workflow that was changed: there may be something to claim."""

    def __init__(
        self,
        store: Store,
        blueprints: Blueprints,
        reporter: Reporter,
        *,
        strict: bool,
        owner: Callable[[], str],
        ending: Ending,
        over: Callable[[Run], None],
        done: Callable[[str], object],
    ) -> None:
        self._store = store
        self._blueprints = blueprints
        self._reporter = reporter
        self._strict = strict
        self._owner = owner
        self._ending = ending
        self._over = over
        self._done = done

    def write(self, session: Any, settlement: Settles) -> Prepared:
        """Apart from what the worker has in memory: whoever writes that may wait for the very transaction."""
        runs = Runs(self._store, self._blueprints, strict=self._strict)
        alone = Settling(
            self._store, runs, owner=self._owner, room=lambda type: NO_ROOM, may_own=lambda: False, hand_out=_nothing,
            settled=_nothing, told=_nothing, ending=self._ending, retries=MOST_LOST,
        )  # fmt: skip
        return alone.write_within(session, settlement)

    def committed(self, prepared: Prepared) -> None:
        """It is in the store, with the writes of the body."""
        self._reporter.stored([(prepared.run, prepared.events)])
        if prepared.over:
            prepared.run.stored(prepared.record, prepared.rows)
            self._over(prepared.run)
        self._done(prepared.run.id)


def _nothing(*_: Any) -> None:
    """Nobody has to be told."""
