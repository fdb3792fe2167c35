"""Blocks that also decorate: `with disable():` or `@disable()`, on `def` and `async def` alike."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import wraps
from inspect import isasyncgenfunction, isgeneratorfunction
from types import TracebackType
from typing import Any, Generic, TypeVar

from holdfast.guard.guard import is_coroutine_function

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


class Scope(Generic[T]):
    """Something that holds for a `with` block, or for every call of a function that it decorates.

    Unlike a decorator made by `contextlib`, it holds until an `async def` has been awaited.
    """

    __slots__ = ("_begun", "_make")

    def __init__(self, make: Callable[[], AbstractContextManager[T]]) -> None:
        self._make = make
        self._begun: list[AbstractContextManager[T]] = []

    def __enter__(self) -> T:
        block = self._make()
        value = block.__enter__()
        self._begun.append(block)
        return value

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._begun.pop().__exit__(kind, error, traceback)

    def __call__(self, fn: F) -> F:
        """Decorate a function; each call gets a block of its own.

        Raises TypeError for classes and generators, around whose later life a call cannot be.
        """
        if isinstance(fn, type) or isgeneratorfunction(fn) or isasyncgenfunction(fn):
            raise TypeError(f"only def and async def can be decorated, got {fn!r}; use `with` inside it")
        make = self._make

        def inside(*args: Any, **kwargs: Any) -> Any:
            with make():
                return fn(*args, **kwargs)

        async def inside_async(*args: Any, **kwargs: Any) -> Any:
            with make():
                return await fn(*args, **kwargs)

        made: Any = wraps(fn)(inside_async if is_coroutine_function(fn) else inside)
        return made  # type: ignore[no-any-return]  # takes and gives what fn does
