"""The outbox from a coroutine: the same methods, to be awaited."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import update_wrapper
from typing import Any, Concatenate, ParamSpec, TypeVar

from sqlalchemy.orm import Session

from holdfast.outbox.outbox import Outbox

P = ParamSpec("P")
T = TypeVar("T")


def _awaited(
    method: Callable[Concatenate[Outbox, P], T],
) -> Callable[Concatenate[AsyncOutbox, P], Coroutine[Any, Any, T]]:
    async def awaited(self: AsyncOutbox, /, *args: P.args, **kwargs: P.kwargs) -> T:
        # By name, so that an override in a subclass of Outbox is the one that runs.
        return await self.outbox.sessions.hop(getattr(self.outbox, method.__name__), *args, **kwargs)

    update_wrapper(awaited, method)
    return awaited


class AsyncOutbox:
    """An Outbox for asynchronous programs, over an `async_sessionmaker` or a `sessionmaker` (in a thread then).

    `enqueue`, `put`, `put_many` and `publish` take the caller's AsyncSession.
    """

    def __init__(self, outbox: Outbox) -> None:
        self.outbox = outbox
        self.enqueue = outbox.aenqueue
        self.put = outbox.aput
        self.put_many = outbox.aput_many
        self.publish = outbox.apublish

    async def run(self, work: Callable[[Session], T]) -> T:
        """Do the work in a transaction of its own."""
        return await self.outbox.arun(work)

    claim_batch = _awaited(Outbox.claim_batch)
    renew = _awaited(Outbox.renew)
    release = _awaited(Outbox.release)
    settle_batch = _awaited(Outbox.settle_batch)
    mark_failed = _awaited(Outbox.mark_failed)
    mark_scheduled = _awaited(Outbox.mark_scheduled)
    mark_abandoned = _awaited(Outbox.mark_abandoned)
    mark_succeeded = _awaited(Outbox.mark_succeeded)
    list_abandoned = _awaited(Outbox.list_abandoned)
    list_scheduled = _awaited(Outbox.list_scheduled)
    get = _awaited(Outbox.get)
    find = _awaited(Outbox.find)
    ids = _awaited(Outbox.ids)
    search = _awaited(Outbox.search)
    facets = _awaited(Outbox.facets)
    tally = _awaited(Outbox.tally)
    attempts = _awaited(Outbox.attempts)
    requeue = _awaited(Outbox.requeue)
    cancel = _awaited(Outbox.cancel)
    verify_again = _awaited(Outbox.verify_again)
    prune = _awaited(Outbox.prune)
    prunable = _awaited(Outbox.prunable)
    status_counts = _awaited(Outbox.status_counts)
    pause = _awaited(Outbox.pause)
    resume = _awaited(Outbox.resume)
    paused = _awaited(Outbox.paused)
    oldest_due = _awaited(Outbox.oldest_due)
    lag = _awaited(Outbox.lag)
