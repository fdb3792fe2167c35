"""Whether the letters of a domain may go out now: an operator's pause, and what the domain's breaker says."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, Protocol

from holdfast.core.redact import redact
from holdfast.errors import PolicyError
from holdfast.letters.events import ReplayPaused
from holdfast.letters.filing import WAKE
from holdfast.letters.handlers import ReplayHandlers
from holdfast.machine.breaker import CircuitState, Control
from holdfast.machine.drain import DOMAIN, TRIAL_WAITS_S, DomainRecord, is_paused, pause, resume
from holdfast.store.change import change
from holdfast.store.codec import instant, maybe_micros
from holdfast.store.port import Store
from holdfast.telemetry.hub import Hub, default_hub

if TYPE_CHECKING:
    from holdfast.guard.guard import Guard

_FREE: Final = frozenset({Control.DISABLED, Control.METRICS_ONLY})


class Way(StrEnum):
    """CLEAR: go. TRIAL: the breaker would take one call to see whether the dependency is back. BARRED: not now."""

    CLEAR = "clear"
    TRIAL = "trial"
    BARRED = "barred"


@dataclass(frozen=True, slots=True)
class Standing:
    """How a domain stands. `busy`: somebody else's trial is under way; `retry_after`: seconds, where it is known."""

    way: Way
    reason: str = ""
    retry_after: float | None = None
    busy: bool = False


class BreakerStates(Protocol):
    """What is asked of a `CircuitBreakerStateRepository`."""

    def get_by_service_name(self, service_name: str) -> Any: ...


CLEAR: Final = Standing(Way.CLEAR)


class Gates:
    """Asks the guard that is registered for a domain, and the shared breaker states where they are given."""

    def __init__(
        self,
        store: Store,
        handlers: ReplayHandlers,
        breakers: BreakerStates | None = None,
        hub: Hub | None = None,
    ) -> None:
        self._store = store
        self._hub = default_hub() if hub is None else hub
        self._handlers = handlers
        self._breakers = breakers

    def standing(self, domain: str, *, knocks: bool = True) -> Standing:
        """Whether letters of the domain may go out now.

        With `knocks`, leave for a probe is asked for where the processes give it to one at a time: whoever will not use
        it must not, or nobody else can probe.
        """
        found = self.record(domain)
        if found is not None and is_paused(found, self._store.now()):
            return Standing(Way.BARRED, _paused_words(found))
        guard = self._handlers.guard_of(domain)
        own = CLEAR if guard is None else standing_of_guard(guard, knocks=knocks)
        circuit = None if guard is None else _circuit_of(guard)
        follows = circuit is not None and circuit.remote is not None
        if own.way is not Way.CLEAR or self._breakers is None or follows:
            return own
        return self._shared(domain if circuit is None else circuit.name)

    def has_breaker(self, domain: str) -> bool:
        guard = self._handlers.guard_of(domain)
        if guard is not None and _circuit_of(guard) is not None:
            return True
        return self._breakers is not None and self._breakers.get_by_service_name(domain) is not None

    def pause(self, domain: str, *, by: str = "", reason: str = "", until: datetime | None = None) -> None:
        """Replay nothing of the domain, on any host, until `resume` or the given time."""
        ends = maybe_micros(until)
        words = redact(reason)
        change(self._store, DOMAIN, domain, lambda found: pause(found, domain, by, words, ends))
        self._hub.emit(ReplayPaused(domain, "", True, by, words))

    def resume(self, domain: str) -> bool:
        """Let the domain's letters go again; False if they were not paused."""
        if change(self._store, DOMAIN, domain, resume, wake=lambda before, after: WAKE)[1] is None:
            return False
        self._hub.emit(ReplayPaused(domain, "", False))
        return True

    def record(self, domain: str) -> DomainRecord | None:
        return self._store.get(DOMAIN, (domain,))[0]

    def _shared(self, name: str) -> Standing:
        """What the store says of a breaker that no circuit here follows."""
        assert self._breakers is not None
        state = self._breakers.get_by_service_name(name)
        if state is None or state.is_closed:
            return CLEAR
        now = instant(self._store.now())
        if state.is_open:
            if state.pin_active(now):
                return Standing(Way.BARRED, f"the breaker of {name!r} is held open by an operator")
            since = None if state.opened_at is None else now - state.opened_at
            wait = timedelta(seconds=TRIAL_WAITS_S[0])
            if since is not None and since < wait:
                left = (wait - since).total_seconds()
                return Standing(Way.BARRED, f"the breaker of {name!r} is open", left)
        return Standing(Way.TRIAL, _trial_words(name, state.state))


def standing_of_guard(guard: Guard, *, knocks: bool = True) -> Standing:
    """What the guard's own circuit would say to a call."""
    circuit = _circuit_of(guard)
    if circuit is None:
        return CLEAR
    refusal = circuit.knock() if knocks else circuit.look("peek")
    state = circuit.state
    # Who only looks gets no leave to probe, and would say for ever that there will be some in a moment.
    if refusal is not None and (knocks or not circuit.look("lacks_leave")):
        words = "is held open by an operator" if circuit.control is Control.ISOLATED else f"is {state.value}"
        return Standing(Way.BARRED, f"the breaker of {guard.name!r} {words}", refusal.retry_after)
    if state is CircuitState.CLOSED or circuit.control in _FREE:
        return CLEAR
    busy = bool(circuit.look("figures").get("probes_held"))
    return Standing(Way.TRIAL, _trial_words(guard.name, state), busy=busy)


def _trial_words(name: str, state: str) -> str:
    return f"the breaker of {name!r} is {state}" + (", and a trial is due" if state == CircuitState.OPEN else "")


def _circuit_of(guard: Guard) -> Any:
    try:
        return guard.circuit
    except PolicyError:
        return None


def _paused_words(found: DomainRecord) -> str:
    by = f" by {found.paused_by}" if found.paused_by else ""
    why = f": {found.pause_reason}" if found.pause_reason else ""
    return f"replay of {found.id!r} is paused{by}{why}"
