"""A guard whose failures are kept, and whose functions can be called again from a letter."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, overload

from holdfast.core.clock import SYSTEM_CLOCK
from holdfast.guard.circuit import CircuitBreakerStrategy, LiveCircuit
from holdfast.guard.guard import Guard
from holdfast.letters.box import LetterBox
from holdfast.letters.capture import Capture, DeadLetter

if TYPE_CHECKING:
    from holdfast.letters.handlers import ReplayHandlers

P = ParamSpec("P")
T = TypeVar("T")


class HeldGuard(Guard):
    """A `Guard` that belongs to a `Holdfast`. `domain` is the name under which its dead letters are kept.

    Its breaker, also one that `replace` adds, is handed to `share`.
    """

    def __init__(
        self,
        name: str,
        *policies: Any,
        box: LetterBox,
        handlers: ReplayHandlers,
        dead_letter: DeadLetter | None,
        share: Callable[[LiveCircuit], object] | None = None,
        **options: Any,
    ) -> None:
        self.dead_letter = dead_letter
        self._share = share
        self._handlers = handlers
        # By identity, for not every callable can be hashed; the function is kept so that its id stays its own.
        self._replayable: dict[int, tuple[Callable[..., Any], str]] = {}
        kept = DeadLetter() if dead_letter is None else dead_letter
        capture = Capture(name, kept, box, options.get("clock", SYSTEM_CLOCK), self._registered_name)
        self.domain = capture.domain
        super().__init__(name, *policies, keeper=None if dead_letter is None else capture, **options)

    def _use(self, policies: tuple[Any, ...], strategies: tuple[Any, ...]) -> None:
        super()._use(policies, strategies)
        breaker = self.plan.first(CircuitBreakerStrategy)
        circuit = None if breaker is None else breaker.circuit
        # One that was handed in may be shared by another guard already.
        if self._share is not None and circuit is not None and circuit.remote is None:
            self._share(circuit)

    @overload
    def replayable(self, fn: Callable[P, T], /) -> Callable[P, T]: ...
    @overload
    def replayable(self, /, *, name: str | None = None) -> Callable[[Callable[P, T]], Callable[P, T]]: ...
    def replayable(self, fn: Callable[..., Any] | None = None, /, *, name: str | None = None) -> Callable[..., Any]:
        """Guard a function and register it: its dead letters can be replayed.

        The letter holds the registered name (the function's own unless given) and the arguments, which must be JSON.
        Raises ValueError for a name that another function of this guard has.
        """
        if fn is None:
            return lambda function: self._register(function, name)
        return self._register(fn, name)

    def _register(self, fn: Callable[P, T], name: str | None) -> Callable[P, T]:
        registered = str(name or getattr(fn, "__qualname__", type(fn).__name__))
        guarded = self(fn)
        self._handlers.register_function(self.domain, registered, guarded, guard=self)
        self._replayable[id(fn)] = (fn, registered)
        return guarded

    def _registered_name(self, fn: Callable[..., Any]) -> str | None:
        found = self._replayable.get(id(fn))
        return None if found is None else found[1]
