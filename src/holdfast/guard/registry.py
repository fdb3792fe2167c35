"""Named pipelines, each built when it is first asked for."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cache
from typing import Final

from holdfast.errors import PolicyError
from holdfast.guard.pipeline import ResiliencePipeline

PipelineFactory = Callable[[], ResiliencePipeline]


class _Entry:
    """A registered name. `builder` is the thread that builds the pipeline just now."""

    __slots__ = ("builder", "factory", "name", "pipeline")

    def __init__(self, name: str, factory: PipelineFactory) -> None:
        self.name = name
        self.factory = factory
        self.pipeline: ResiliencePipeline | None = None
        self.builder: int | None = None


class ResiliencePipelineRegistry:
    """Pipelines by name. A factory runs once, without any lock held, and may ask for other pipelines.

    A factory that fails is run again by the next caller.
    """

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}
        self._built = threading.Condition(threading.Lock())
        self._building: dict[int, list[_Entry]] = {}  # by thread, the one begun first in front
        self._awaited: dict[int, _Entry] = {}  # by thread

    def register(self, name: str, factory: PipelineFactory) -> None:
        """Name a pipeline. A name that is taken gets a new pipeline; whoever holds the old one keeps it."""
        if not callable(factory):
            raise TypeError(f"pipeline {name!r} needs a factory, got {factory!r}; use lambda: it for one you have")
        with self._built:
            self._entries[name] = _Entry(name, factory)

    def get(self, name: str) -> ResiliencePipeline:
        """The pipeline of that name, built now if nobody asked before.

        Raises KeyError for an unknown name, and PolicyError for factories that need each other's pipelines.
        """
        entry = self._entries.get(name)
        if entry is not None and entry.pipeline is not None:
            return entry.pipeline
        entry = self._claim(name, threading.get_ident())
        return self._build(entry) if entry.pipeline is None else entry.pipeline

    def names(self) -> list[str]:
        """The registered names, sorted."""
        with self._built:
            return sorted(self._entries)

    def _claim(self, name: str, me: int) -> _Entry:
        """The entry: built, or to be built by this thread. Waits while another thread builds it."""
        with self._built:
            while True:
                entry = self._entries.get(name)
                if entry is None:
                    known = ", ".join(map(repr, sorted(self._entries))) or "none"
                    raise KeyError(f"no pipeline is registered as {name!r}; known names: {known}")
                if entry.pipeline is not None:
                    return entry
                if entry.builder is None:
                    entry.builder = me
                    self._building.setdefault(me, []).append(entry)
                    return entry
                self._refuse_cycle(entry, me)
                self._awaited[me] = entry
                try:
                    self._built.wait()
                finally:
                    del self._awaited[me]

    def _refuse_cycle(self, wanted: _Entry, me: int) -> None:
        """Raises PolicyError when the wanted pipeline waits, through whatever threads, for one that we are building."""
        path, entry = [], wanted
        while entry.builder is not None:
            stack = self._building[entry.builder]
            path += [each.name for each in stack[stack.index(entry) :]]
            if entry.builder == me:
                raise PolicyError(f"pipelines need each other: {' -> '.join([*path, wanted.name])}; break the circle")
            if entry.builder not in self._awaited:
                return
            entry = self._awaited[entry.builder]

    def _build(self, entry: _Entry) -> ResiliencePipeline:
        made = None
        try:
            made = entry.factory()
            if not isinstance(made, ResiliencePipeline):
                raise TypeError(f"the factory of pipeline {entry.name!r} returned {made!r}, not a ResiliencePipeline")
            return made
        finally:
            me = threading.get_ident()
            with self._built:
                entry.pipeline = made if isinstance(made, ResiliencePipeline) else None
                entry.builder = None
                self._building[me].pop()
                if not self._building[me]:
                    del self._building[me]
                self._built.notify_all()


def get_pipeline_registry() -> ResiliencePipelineRegistry:
    """The process-wide registry, made at first use."""
    # A cache alone may run its function twice when two threads come first.
    with _FIRST_USE:
        return _registry()


_FIRST_USE: Final = threading.Lock()


@cache
def _registry() -> ResiliencePipelineRegistry:
    return ResiliencePipelineRegistry()
