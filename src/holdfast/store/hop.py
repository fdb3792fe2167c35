"""One thread hop per call: the asynchronous face of something that blocks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import update_wrapper
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

P = ParamSpec("P")
S = TypeVar("S")
S_co = TypeVar("S_co", covariant=True)
T = TypeVar("T")


class Hopping(Generic[S_co]):
    """An object whose methods run those of `sync` in a thread."""

    def __init__(self, sync: S_co) -> None:
        self.sync = sync

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.sync!r}>"


def hop(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[Hopping[S], P], Coroutine[Any, Any, T]]:
    """The method for a class that derives from `Hopping`: same arguments, and a result to await.

    A call that is cancelled stops waiting; what the thread has begun it finishes.
    """

    async def hopped(self: Hopping[S], /, *args: P.args, **kwargs: P.kwargs) -> T:
        # By name, so that an override in a subclass of the synchronous class is the one that runs.
        return await asyncio.to_thread(getattr(self.sync, method.__name__), *args, **kwargs)

    update_wrapper(hopped, method)
    return hopped
