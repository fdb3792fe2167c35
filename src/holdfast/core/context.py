"""The state of one guarded call, and how it travels: a ContextVar holding a chain of links.

A *link* is a plain list `[source, parent link, limit, context]`, because a fused guard makes one on every call and a
list is the cheapest fresh object there is. `source` tells the operation and the clock, `limit` is the monotonic instant
by which everything below must end (None: nothing that calls below must heed), and `context` stays None until
somebody asks for it. Links are shared by tasks and threads that copied the context; only `context` is ever filled in,
and a fifth element may come and go: an exception that a call below says nobody should retry.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from contextlib import ContextDecorator, contextmanager
from contextvars import ContextVar, Token
from functools import wraps
from inspect import iscoroutinefunction
from typing import Any, Generic, Protocol, TypeVar, cast, get_args, overload

from holdfast.core.clock import SYSTEM_CLOCK, Clock
from holdfast.core.deadline import Deadline
from holdfast.core.ids import new_call_id

V = TypeVar("V")
D = TypeVar("D")
F = TypeVar("F", bound=Callable[..., Any])


class Source(Protocol):
    """Whoever published a link."""

    @property
    def operation_key(self) -> str: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def retry_domain(self) -> str | None:
        """The failure domain that is being retried here, if any."""
        ...


class ContextSource:
    """A source that makes the context itself, when somebody asks for it."""

    __slots__ = ()

    def context(self, deadline: Deadline) -> ResilienceContext:
        raise NotImplementedError


Link = list[Any]
SOURCE, PARENT, LIMIT, CONTEXT = range(4)

CURRENT: ContextVar[Link | None] = ContextVar("holdfast_link", default=None)
_naming = threading.RLock()


class TypedKey(Generic[V]):
    """A property's name together with its declared type: `TypedKey[int]("tenant")`.

    Keys are equal when name *and* declared type are, so two libraries cannot overwrite each other by accident.
    """

    __slots__ = ("__orig_class__", "name")

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    def declared(self) -> Any:
        """The V in `TypedKey[V]`, or Any when none was given."""
        made_as = getattr(self, "__orig_class__", None)
        return get_args(made_as)[0] if made_as is not None else Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TypedKey) and self.name == other.name and self.declared == other.declared

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return f"TypedKey[{getattr(self.declared, '__name__', self.declared)}]({self.name!r})"


class ResilienceContext:
    """Per-call state: what is called, by when it must end, who called it, and a bag of typed properties."""

    __slots__ = ("_bag", "_call_id", "call", "deadline", "operation_key", "parent_call_id")

    retry_domain = None

    def __init__(
        self,
        operation_key: str,
        deadline: Deadline | None = None,
        call_id: str | None = None,
        parent_call_id: str | None = None,
        properties: dict[TypedKey[Any], Any] | None = None,
        call: Any = None,
    ) -> None:
        self.operation_key = operation_key
        self.deadline = _NEVER if deadline is None else deadline
        self._call_id = call_id
        self.parent_call_id = parent_call_id
        self._bag: dict[TypedKey[Any], Any] = {} if properties is None else properties
        self.call = call  # the running call, for strategies; None in a context made by hand

    @property
    def call_id(self) -> str:
        """The call's identity: 12 hexadecimal characters, drawn when somebody first asks."""
        if self._call_id is not None:
            return self._call_id
        return draw_id(self) if self.call is None else str(self.call.call_id)

    @property
    def clock(self) -> Clock:
        return self.deadline.clock

    @property
    def properties(self) -> dict[TypedKey[Any], Any]:
        """A copy of the property bag."""
        return dict(self._bag)

    @overload
    def get(self, key: TypedKey[V]) -> V | None: ...
    @overload
    def get(self, key: TypedKey[V], default: D) -> V | D: ...
    def get(self, key: TypedKey[Any], default: Any = None) -> Any:
        """The property's value, or the default. A stored 0 or False is a value."""
        return self._bag.get(key, default) if self._bag else default

    def set(self, key: TypedKey[V], value: V) -> None:
        self._bag[key] = value

    def derive_child(self, operation_key: str | None = None, deadline: Deadline | None = None) -> ResilienceContext:
        """The context of a call made by this one: new id, parent link, copied properties.

        The deadline is this one's object unless the given one is tighter.
        """
        tighter = deadline is not None and deadline.remaining() < self.deadline.remaining()
        return ResilienceContext(
            self.operation_key if operation_key is None else operation_key,
            deadline if tighter else self.deadline,
            None,
            self.call_id,
            dict(self._bag),
        )

    def tightened(self, deadline: Deadline) -> ResilienceContext:
        """The same call under a tighter deadline: same identity, same property bag."""
        return ResilienceContext(
            self.operation_key, deadline, self._identity, self.parent_call_id, self._bag, self.call
        )

    @property
    def _identity(self) -> str | None:
        """The id to give to a copy; None where the running call will tell it."""
        return self.call_id if self.call is None else self._call_id

    def fork(self) -> ResilienceContext:
        """The same call with a property bag of its own, for a branch whose writes may be thrown away."""
        return ResilienceContext(
            self.operation_key, self.deadline, self._identity, self.parent_call_id, dict(self._bag), self.call
        )

    def merge(self, branch: ResilienceContext) -> None:
        """Take over what a branch wrote."""
        self._bag.update(branch._bag)

    def __repr__(self) -> str:
        return f"<ResilienceContext {self.operation_key} {self.call_id} {self.deadline!r}>"


_NEVER = Deadline(math.inf)


class Named(Protocol):
    _call_id: str | None


def draw_id(owner: Named) -> str:
    """The owner's id, drawn now if it has none; two threads that ask at the same time hear the same."""
    with _naming:
        if owner._call_id is None:
            owner._call_id = new_call_id()
        return owner._call_id


def current_context() -> ResilienceContext | None:
    """The context of the guarded call this code runs in, or None outside of one."""
    return context_of(CURRENT.get())


def context_of(link: Link | None) -> ResilienceContext | None:
    """The context of a link, made now if nobody has looked before."""
    if link is None:
        return None
    found = link[CONTEXT]
    if found is None:
        parent = context_of(link[PARENT])
        made = _materialise(link, parent)
        with _naming:  # two tasks that look first at the same time must see one context
            found = link[CONTEXT]
            if found is None:
                found = link[CONTEXT] = made
    return cast("ResilienceContext", found)


def _materialise(link: Link, parent: ResilienceContext | None) -> ResilienceContext:
    source, limit = link[SOURCE], link[LIMIT]
    made = Deadline(math.inf if limit is None else limit, source.clock)
    if isinstance(source, ContextSource):
        return source.context(made)
    if parent is None:
        return ResilienceContext(source.operation_key, made)
    return parent.derive_child(source.operation_key, made)


def new_link(source: Source, parent: Link | None, context: ResilienceContext) -> Link:
    """A link for a context that exists already. It stays binding for calls below if the parent's was."""
    at = context.deadline.at
    binding = at != math.inf or (parent is not None and parent[LIMIT] is not None)
    return [source, parent, at if binding else None, context]


def publish(link: Link) -> Token[Link | None]:
    return CURRENT.set(link)


def withdraw(token: Token[Link | None] | None) -> None:
    """Undo a `publish`; None undoes nothing."""
    if token is None:
        return
    try:
        CURRENT.reset(token)
    except ValueError:
        pass  # a coroutine that is collected after its loop has closed ends in another context than it began in


def ambient_deadline(link: Link | None, clock: Clock) -> Deadline:
    """The deadline that the surrounding code set, told on `clock`."""
    limit = None if link is None else link[LIMIT]
    if limit is None:
        return _NEVER if clock is SYSTEM_CLOCK else Deadline(math.inf, clock)
    assert link is not None
    theirs: Clock = link[SOURCE].clock
    if theirs is clock:
        return Deadline(limit, clock)
    return Deadline(clock.monotonic() + (limit - theirs.monotonic()), clock)


def retried_above(link: Link | None, domain: str) -> Source | None:
    """The nearest surrounding call that retries the same failure domain."""
    while link is not None:
        source: Source = link[SOURCE]
        if source.retry_domain == domain:
            return source
        link = link[PARENT]
    return None


def forbid_retry(link: Link | None, error: BaseException | None) -> None:
    """Tell the surrounding call that retrying this exception would defeat a budget below."""
    if link is not None and error is not None:
        link[CONTEXT + 1 :] = [error]


def retry_forbidden(link: Link | None, error: BaseException) -> bool:
    """Whether a call below has forbidden to retry this exception; the word holds for one attempt."""
    if link is None or len(link) == CONTEXT + 1:
        return False
    forbidden = link.pop() is error
    del link[CONTEXT + 1 :]
    return forbidden


@contextmanager
def use_context(ctx: ResilienceContext) -> Iterator[ResilienceContext]:
    """Run a block under `ctx`, e.g. in a thread that did not copy the caller's context."""
    token = publish(new_link(ctx, None, ctx))
    try:
        yield ctx
    finally:
        CURRENT.reset(token)


class Scope:
    """The source of a link that bounds or marks a block but is no call of its own."""

    __slots__ = ("clock", "operation_key")

    retry_domain = None

    def __init__(self, operation_key: str, clock: Clock) -> None:
        self.operation_key = operation_key
        self.clock = clock


def impose(wanted: Deadline) -> ResilienceContext:
    """Bound every guarded call from here on; for good, in a context of one's own. The context that says so."""
    parent, clock = CURRENT.get(), wanted.clock
    bound = wanted if parent is None else ambient_deadline(parent, clock).tighten(wanted.at)
    outer = context_of(parent)
    key = outer.operation_key if outer is not None else ""
    made = ResilienceContext(key, bound) if outer is None else outer.tightened(bound)
    CURRENT.set(new_link(Scope(key, clock), parent, made))
    return made


class deadline(ContextDecorator):  # reads as a verb: `with deadline(2.0):`
    """Bound every guarded call in a block: `with deadline(2.0): ...`, also `async with` and as a decorator.

    Nested deadlines only tighten. Code in the block reads what is left with `remaining_time()`.
    """

    def __init__(self, seconds: float | Deadline, *, clock: Clock = SYSTEM_CLOCK) -> None:
        if not isinstance(seconds, Deadline) and not seconds == seconds:
            raise ValueError(f"deadline() needs a number of seconds, got {seconds!r}")
        self._given = seconds
        self._clock = clock

    def _recreate_cm(self) -> deadline:
        return deadline(self._given, clock=self._clock)

    def __call__(self, func: F) -> F:
        if not iscoroutinefunction(func):
            return super().__call__(func)

        @wraps(func)
        async def bounded(*args: Any, **kwargs: Any) -> Any:
            with self._recreate_cm():  # around the await; the base class would end it before the coroutine runs
                return await func(*args, **kwargs)

        return cast("F", bounded)

    def __enter__(self) -> Deadline:
        given = self._given
        return impose(given if isinstance(given, Deadline) else Deadline.after(given, self._clock)).deadline

    def __exit__(self, *exc: object) -> None:
        # No token is kept: one object may be used in several tasks at once, each with a context of its own.
        link = CURRENT.get()
        if link is not None:
            CURRENT.set(link[PARENT])

    async def __aenter__(self) -> Deadline:
        return self.__enter__()

    async def __aexit__(self, *exc: object) -> None:
        self.__exit__()


def remaining_time(default: float = math.inf) -> float:
    """Seconds left for the code that asks: what a cooperative function passes on to its sockets."""
    link = CURRENT.get()
    limit = None if link is None else link[LIMIT]
    if limit is None or limit == math.inf:
        return default
    assert link is not None
    left: float = limit - link[SOURCE].clock.monotonic()
    return max(0.0, left)
