"""Result cache: answer with an earlier success while it is fresh."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, NamedTuple

from holdfast.core.context import ResilienceContext
from holdfast.core.outcome import Outcome, OutcomeKind
from holdfast.errors import PolicyError
from holdfast.guard.call import Call, Next, Setting


@dataclass(frozen=True, slots=True)
class Cache:
    """Keep successes for `ttl` seconds, at most `max_entries` of them; the least recently used leave first.

    The key is the function with its arguments; calls with arguments that cannot be hashed are not cached.
    `key(*args, **kwargs)` gives another one for the same function, or None for a call that must not be cached; a
    function that is made anew for every call needs it. A value is stored once, when its call has ended, and handed
    out as it is: nobody may change it. Calls that run at the same time do not wait for each other.
    """

    ttl: float
    max_entries: int = 1024
    key: Callable[..., Hashable] | None = None
    id: str | None = None

    def __post_init__(self) -> None:
        ttl: Any = self.ttl
        if isinstance(ttl, bool) or not (isinstance(ttl, (int, float)) and ttl > 0):
            raise PolicyError(f"Cache.ttl must be seconds above 0, got {ttl!r}; leave the Cache out to store nothing")
        most: Any = self.max_entries
        if isinstance(most, bool) or not isinstance(most, int) or most < 1:
            raise PolicyError(f"Cache.max_entries must be a whole number of at least 1, got {most!r}")
        if self.key is not None and not callable(self.key):
            raise PolicyError(f"Cache.key must be a function of the call's arguments, got {self.key!r}")

    def strategies(self, setting: Setting) -> list[CacheStrategy]:
        return [CacheStrategy(self)]


class Entry(NamedTuple):
    """A stored success and when it was stored."""

    at: float
    value: Any
    detail: str | None


class Entries:
    """Stored successes, least recently used first, shared by threads and loops."""

    __slots__ = ("_entries", "_lock", "max_entries", "ttl")

    def __init__(self, ttl: float, max_entries: int) -> None:
        self.ttl = ttl
        self.max_entries = max_entries
        self._entries: OrderedDict[Hashable, Entry] = OrderedDict()
        self._lock = threading.Lock()

    def find(self, key: Hashable, now: float) -> Entry | None:
        """The entry, if it is still fresh."""
        with self._lock:
            return self._fresh(key, now)

    def store(self, key: Hashable, value: Any, detail: str | None, now: float) -> None:
        """Keep a success, unless a call that ended earlier has stored one that is still fresh."""
        with self._lock:
            if self._fresh(key, now) is None:
                self._entries[key] = Entry(now, value, detail)
                self._trim()

    def change(self, ttl: float, max_entries: int) -> None:
        """Other limits, also for what is stored already."""
        with self._lock:
            self.ttl, self.max_entries = ttl, max_entries
            self._trim()

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._entries.clear()

    def __len__(self) -> int:
        return len(self._entries)

    def _fresh(self, key: Hashable, now: float) -> Entry | None:
        entry = self._entries.get(key)
        if entry is None:
            return None
        if now - entry.at >= self.ttl:
            del self._entries[key]
            return None
        self._entries.move_to_end(key)
        return entry

    def _trim(self) -> None:
        while len(self._entries) > self.max_entries:
            self._entries.popitem(last=False)


class CacheStrategy:
    """Answers a known call without going on. Such an outcome has `metadata["cached"]` and no attempts."""

    kind = "cache"
    passes_context = True

    def __init__(self, policy: Cache) -> None:
        self.policy = policy
        self.entries = Entries(policy.ttl, policy.max_entries)

    def adopt(self, old: CacheStrategy, now: float) -> None:
        """Go on with the entries of an older strategy, under this one's limits."""
        self.entries = old.entries
        self.entries.change(self.policy.ttl, self.policy.max_entries)

    async def execute(self, nxt: Next, ctx: ResilienceContext) -> Outcome[Any]:
        call: Call = ctx.call
        entries, monotonic = self.entries, call.clock.monotonic
        key = _own_key(call) if self.policy.key is None else call.ask(_given_key, self.policy.key, call)
        if key is None:
            return await nxt(ctx)
        known = entries.find(key, monotonic())
        if known is not None:
            return Outcome(OutcomeKind.SUCCESS, known.value, None, known.detail, {"cached": True})
        outcome = await nxt(ctx)
        if outcome.kind is OutcomeKind.SUCCESS:
            entries.store(key, outcome.value, outcome.detail, monotonic())
        return outcome

    def describe(self) -> str:
        return f"cache: {self.policy.ttl:g} s, at most {self.policy.max_entries} entries"


def _own_key(call: Call) -> Hashable | None:
    key = call.fn, call.args, tuple(sorted(call.kwargs.items(), key=lambda item: item[0]))
    try:
        hash(key)
    except TypeError:
        return None
    return key


def _given_key(function: Callable[..., Hashable], call: Call) -> Hashable | None:
    """The user's key within its operation and function: by name, as closures are new objects for every call."""
    given = function(*call.args, **call.kwargs)
    if given is None:
        return None
    fn: Any = call.fn
    while not hasattr(fn, "__qualname__"):
        inner = getattr(fn, "func", None) or getattr(fn, "fn", None)  # what a partial, or a pipeline, has wrapped
        fn = type(fn) if inner is None else inner
    key = call.operation_key, fn.__module__, fn.__qualname__, given
    hash(key)
    return key
