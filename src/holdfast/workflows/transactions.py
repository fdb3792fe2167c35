"""Tasks whose own writes commit with their step: body, result and everything that follows from it in one transaction.

The session is on the store's database. Whoever has lost the item, or died, has committed nothing: the step swaps the
item for its next version, and that is the fence for the writes of the body, too.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

from holdfast.errors import ConfigurationError, PermanentError, TaskError, TransientError
from holdfast.workflows.preparing import Prepared, Settles

if TYPE_CHECKING:  # whoever has no transactional task does without SQLAlchemy
    from sqlalchemy.orm import Session, sessionmaker

    from holdfast.workflows.calling import Call

SessionsOf = Callable[[], "sessionmaker[Session]"]
_session: Final[ContextVar[Session | None]] = ContextVar("holdfast_session", default=None)


def current_session() -> Session:
    """The session of the step whose task runs here. What is written with it commits with the step; do not commit it.

    Raises TaskError outside of a task with `effect="transactional"`.
    """
    found = _session.get()
    if found is None:
        raise TaskError('there is no session here; it is for tasks with effect="transactional", while they run')
    return found


def no_sessions() -> sessionmaker[Session]:
    """For an engine that was not given any."""
    raise ConfigurationError(
        "tasks that are transactional need sessions on the store's database; use Holdfast(url) with sqlite:///… or "
        "postgresql://…"
    )


class Transactions:
    """Runs the bodies of transactional tasks. `settle` writes what follows, in the session that it is given; `settled`
    is told when all of it is committed."""

    def __init__(
        self,
        sessions: SessionsOf,
        settle: Callable[[Session, Settles], Prepared],
        settled: Callable[[Prepared], None],
    ) -> None:
        self._sessions = sessions
        self._settle = settle
        self._settled = settled

    def run(self, call: Call, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """What the task gives, once everything is committed. What it raises undoes everything."""
        from sqlalchemy.exc import DBAPIError

        from holdfast.audit.sessions import Sessions, was_undone

        def work(session: Session) -> tuple[Any, Prepared]:
            token = _session.set(session)
            try:
                value = function(*args, **kwargs)
            except Exception as error:
                if session.in_transaction():
                    raise
                raise _ended(call) from error
            finally:
                _session.reset(token)
            if hasattr(type(value), "__await__"):
                raise TaskError(f"task {call.task.name!r} is transactional and gave an awaitable; make it a function")
            if not session.in_transaction():
                raise _ended(call)
            session.flush()
            return value, self._settle(session, call.answered(value))

        try:
            value, prepared = Sessions(self._sessions()).run(work)
        except DBAPIError as error:
            if was_undone(error) or error.connection_invalidated:
                raise TransientError(f"the database has undone the step: {error.orig}") from error
            raise
        call.is_settled = True
        self._settled(prepared)
        return value


def _ended(call: Call) -> PermanentError:
    """What is not to be tried again: what it wrote may be there."""
    return PermanentError(
        f"task {call.task.name!r} has committed, rolled back or closed its session, which commits with its step; for a "
        "part of it use a savepoint: with current_session().begin_nested()"
    )
