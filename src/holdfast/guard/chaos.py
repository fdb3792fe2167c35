"""Chaos: failures, answers, latency or code of one's own, put into a share of the calls on purpose."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from holdfast.core.context import ResilienceContext
from holdfast.core.outcome import Outcome, OutcomeKind
from holdfast.errors import PolicyError
from holdfast.guard.call import ENDPOINT, Call, Next, Setting
from holdfast.guard.invoke import failed, returned
from holdfast.telemetry.events import ChaosInjected

_UNSET: Final = object()


class ChaosKind(StrEnum):
    """What is put into a call."""

    FAULT = "fault"  # an exception instead of the call
    OUTCOME = "outcome"  # a result instead of the call
    LATENCY = "latency"  # a pause before the call
    BEHAVIOUR = "behaviour"  # code before the call


_FIELDS: Final = {
    ChaosKind.FAULT: "error",
    ChaosKind.OUTCOME: "outcome",
    ChaosKind.LATENCY: "latency",
    ChaosKind.BEHAVIOUR: "behaviour",
}


@dataclass(frozen=True, slots=True)
class Chaos:
    """Put chaos of one kind into a share `rate` of the calls, inside every other policy. Off unless `enabled` says so.

    The field named like the kind tells what: `error` (an exception, its class, or a function; default: a
    ConnectionError), `outcome` (a result, an Outcome, or a function), `latency` (seconds or a function; 0 or less is
    ignored), `behaviour` (a function; what it raises is the call's failure). `enabled` and `rate` may be functions
    too. All of them take the context; those of outcome and behaviour may be async under an async call.
    """

    kind: ChaosKind | str = ChaosKind.FAULT
    rate: float | Callable[[ResilienceContext], float] = 0.001
    enabled: bool | Callable[[ResilienceContext], bool] = False
    error: BaseException | type[BaseException] | Callable[[ResilienceContext], BaseException] | None = None
    outcome: Any = _UNSET
    latency: float | Callable[[ResilienceContext], float] | None = None
    behaviour: Callable[[ResilienceContext], Any] | None = None
    id: str | None = None

    def __post_init__(self) -> None:
        try:
            kind = ChaosKind(self.kind)
        except ValueError:
            raise PolicyError(f"Chaos.kind must be one of {', '.join(ChaosKind)}, got {self.kind!r}") from None
        object.__setattr__(self, "kind", kind)
        for other, field in _FIELDS.items():
            given = getattr(self, field) is not (_UNSET if field == "outcome" else None)
            if given and other is not kind:
                raise PolicyError(
                    f"Chaos.{field} does not go with kind={kind.value!r}; use kind={other.value!r} for it"
                )
            if not given and other is kind and kind is not ChaosKind.FAULT:
                raise PolicyError(f"Chaos.{field} must be given for kind={kind.value!r}, got nothing")
        self._check_values()

    def _check_values(self) -> None:
        rate: Any = self.rate
        if not callable(rate) and not (isinstance(rate, (int, float)) and not math.isnan(rate)):
            raise PolicyError(f"Chaos.rate must be a share between 0 and 1 or a function of the context, got {rate!r}")
        if not callable(self.enabled) and not isinstance(self.enabled, bool):
            raise PolicyError(f"Chaos.enabled must be True, False or a function of the context, got {self.enabled!r}")
        if not (self.error is None or isinstance(self.error, BaseException) or callable(self.error)):
            raise PolicyError(f"Chaos.error must be an exception, its class or a function, got {self.error!r}")
        latency: Any = self.latency
        if not (latency is None or callable(latency) or (isinstance(latency, (int, float)) and latency < math.inf)):
            raise PolicyError(f"Chaos.latency must be a finite number of seconds or a function, got {latency!r}")
        if not (self.behaviour is None or callable(self.behaviour)):
            raise PolicyError(f"Chaos.behaviour must be a function of the context, got {self.behaviour!r}")

    def strategies(self, setting: Setting) -> list[ChaosStrategy]:
        return [ChaosStrategy(self)]


class ChaosStrategy:
    """Draws for each pass whether to inject. Each injection is an event, and marked in `metadata["chaos"]`."""

    kind = "chaos"
    passes_context = True

    def __init__(self, policy: Chaos) -> None:
        self.policy = policy

    @property
    def is_off(self) -> bool:
        """Whether no call can ever meet it."""
        return self.policy.enabled is False

    async def execute(self, nxt: Next, ctx: ResilienceContext) -> Outcome[Any]:
        call: Call = ctx.call
        if not self._strikes(call, ctx):
            return await nxt(ctx)
        policy = self.policy
        match policy.kind:
            case ChaosKind.FAULT:
                self._tell(call)
                outcome = _fail(call, ctx, self._error(ctx))
            case ChaosKind.OUTCOME:
                self._tell(call)
                outcome = await self._answer(call, ctx)
            case ChaosKind.LATENCY:
                seconds = call.ask(policy.latency, ctx) if callable(policy.latency) else policy.latency
                if not (isinstance(seconds, (int, float)) and 0 < seconds < math.inf):
                    return await nxt(ctx)
                self._tell(call)
                await call.driver.sleep(seconds)
                outcome = await nxt(ctx)
            case _:
                self._tell(call)
                outcome = await self._behave(nxt, call, ctx)
        return outcome.evolve(metadata={"chaos": (str(policy.kind), *outcome.metadata.get("chaos", ()))})

    def _strikes(self, call: Call, ctx: ResilienceContext) -> bool:
        policy = self.policy
        if not (call.ask(policy.enabled, ctx) if callable(policy.enabled) else policy.enabled):
            return False
        rate = call.ask(policy.rate, ctx) if callable(policy.rate) else policy.rate
        # Draws lie in [0, 1), so a rate is clamped by the comparison itself.
        return rate is not None and call.setting.rng() < rate

    def _tell(self, call: Call) -> None:
        call.emit(ChaosInjected(call.operation_key, call.call_id, str(self.policy.kind)))

    def _error(self, ctx: ResilienceContext) -> BaseException:
        error = self.policy.error
        if error is None:
            return ConnectionError("injected by chaos")
        if isinstance(error, BaseException):
            return error
        try:
            return error() if isinstance(error, type) else error(ctx)
        except Exception as raised:  # a function that raises its fault instead of returning it
            return raised

    async def _answer(self, call: Call, ctx: ResilienceContext) -> Outcome[Any]:
        answer = self.policy.outcome
        if callable(answer):
            try:
                answer = await _awaited(call, answer(ctx))
            except Exception as error:  # user code; its failure is the call's
                return _fail(call, ctx, error)
        if not isinstance(answer, Outcome):
            return returned(call, ctx, answer, 0.0)
        if answer.kind is not OutcomeKind.REJECTED:
            call.record(answer.kind, 0.0, answer.error, ctx.get(ENDPOINT))
        return answer.evolve(attempts=len(call.trail))

    async def _behave(self, nxt: Next, call: Call, ctx: ResilienceContext) -> Outcome[Any]:
        assert self.policy.behaviour is not None
        try:
            await _awaited(call, self.policy.behaviour(ctx))
        except Exception as error:  # user code; its failure is the call's
            return _fail(call, ctx, error)
        return await nxt(ctx)

    def describe(self) -> str:
        rate = self.policy.rate
        share = "a share" if callable(rate) else f"{min(1.0, max(0.0, rate)):.4g}"
        when = {True: "", False: ", off"}.get(self.policy.enabled, ", when enabled")  # type: ignore[arg-type]
        return f"chaos: {self.policy.kind} in {share} of the calls{when}"


def _fail(call: Call, ctx: ResilienceContext, error: BaseException) -> Outcome[Any]:
    """What comes of an error that the function itself might have raised.

    Raises the error if the call does not classify it.
    """
    if isinstance(error, call.setting.passthrough) or not isinstance(error, Exception):
        raise error
    return failed(call, ctx, error, 0.0)


async def _awaited(call: Call, value: Any) -> Any:
    if not hasattr(value, "__await__"):
        return value
    if call.driver.is_async:
        return await value
    if hasattr(value, "close"):
        value.close()
    raise TypeError(f"{call.operation_key}: async chaos needs an async call")
