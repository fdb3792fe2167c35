"""The short way: how a call goes on from an attempt that failed plainly, without the strategies.

The fused path makes further attempts itself, at once, for as long as they fail plainly: by an exception that says
nothing about retrying, in a call that is nobody else's, with nobody listening. What follows such a failure depends on
the types of the exceptions so far and on nothing else, so the machine is asked about it once: its answers make a tree
of `Step`s, through which a failing call goes by one look into a dict for each attempt. Anything else leaves for the
general path, by a `Replay` that takes along what has been.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any, Final

from holdfast.core.classify import default_classify, may_hint, plain_kind, retry_after_hint
from holdfast.core.context import Link
from holdfast.core.outcome import Evidence, Outcome, OutcomeKind, outcome_of
from holdfast.guard.call import Attempt, Replay, attempt_of
from holdfast.machine.retry import Retry, is_last, repeats_at_once

if TYPE_CHECKING:
    from holdfast.guard.fuse import Parts
    from holdfast.guard.plan import Plan

MAX_STEPS: Final = 1024
"""How many a plan remembers; exception types may be made at run time."""

SUCCESS: Final = OutcomeKind.SUCCESS
NOTE: Final = "holdfast: "

Trail = tuple[BaseException, float | None, Any]
"""Attempts that failed, the latest first: the error, when it ended (None: nobody read the clock), those before."""


class Step(dict[type[BaseException], "Step"]):
    """What follows attempts that failed with exceptions of these types; indexed by the next type, the step after it.

    `kind` is None where the general path must be asked, `asks` is True where the exception itself must be. `story` is
    None if another attempt follows, else what the caller is told: the outcome stands. It is empty for one attempt.
    """

    __slots__ = ("_before", "_way", "asks", "evidence", "kind", "made", "story", "type_name")

    def __init__(
        self, way: ShortWay, before: Step | None = None, error_type: type[BaseException] | None = None
    ) -> None:
        self._way = way
        self._before = before
        self.made: int = 0 if before is None else before.made + 1
        self.type_name = "" if error_type is None else error_type.__name__
        self.asks = error_type is None or may_hint(error_type)
        self.kind: OutcomeKind | None = None if error_type is None else way.kind_after(self.made, error_type)
        self.evidence: Evidence | None = None if self.kind is None else self.kind.evidence
        self.story: str | None = None
        if self.kind is None:
            self.asks = True
        elif is_last(way.policy, self.made, self.kind):
            self.story = story_of(self.made, self._names()) if self.made > 1 else ""

    def __missing__(self, error_type: type[BaseException]) -> Step:
        made = Step(self._way, self, error_type)
        if self._way.remembers(self):
            self[error_type] = made
        return made

    def _names(self) -> list[str]:
        names: list[str] = []
        step: Step | None = self
        while step is not None and step.made:
            names.append(step.type_name)
            step = step._before
        return names[::-1]


class ShortWay:
    """The steps of a plan of a Retry and a Breaker at most, and how to leave them."""

    __slots__ = ("_next_number", "_passthrough", "_wall", "first", "policy", "repeats")

    def __init__(self, plan: Plan, parts: Parts) -> None:
        self.policy = Retry(attempts=1) if parts.retry is None else parts.retry.policy
        self.repeats = self.policy.attempts != 1 and repeats_at_once(self.policy)
        self._passthrough = plan.setting.passthrough
        self._wall = plan.setting.clock.wall
        self._next_number = count(1).__next__
        self.first = Step(self)

    @classmethod
    def of(cls, plan: Plan, parts: Parts | None) -> ShortWay | None:
        """The short way of a plan, if it has one."""
        if parts is None or plan.setting.classify is not default_classify or plan.setting.keeper is not None:
            return None
        budget = None if parts.retry is None else parts.retry.budget
        others = (parts.fallback, parts.rate_limit, parts.bulkhead, parts.limit, budget)
        return cls(plan, parts) if others == (None,) * 5 else None

    def kind_after(self, made: int, error_type: type[BaseException]) -> OutcomeKind | None:
        """The kind of such a failure at the end of `made` attempts, if the policy has no more to ask about it."""
        kind = None if issubclass(error_type, self._passthrough) else plain_kind(error_type)
        return kind if kind is not None and (self.repeats or is_last(self.policy, made, kind)) else None

    def remembers(self, step: Step) -> bool:
        """Whether there is room for one more after `step`."""
        return step.made < MAX_STEPS and self._next_number() <= MAX_STEPS

    def plain(self, step: Step, error: BaseException) -> bool:
        """Whether an exception that led to this step says nothing of its own."""
        if step.kind is None or isinstance(error, self._passthrough):
            return False
        return retry_after_hint(error, self._wall) is None

    def ended(
        self, trail: Trail | None, step: Step, error: BaseException, started: float | None, ended: float | None
    ) -> Outcome[Any]:
        """The outcome of a call whose last attempt failed and stands."""
        assert step.kind is not None
        attempts = [*attempts_of(trail, started), _attempt(step.made - 1, step.kind, trail, started, ended, error)]
        return outcome_of(step.kind, None, error, None, {"trail": attempts}, None, None, step.made, None)

    def recovered(self, trail: Trail, value: Any, started: float | None, ended: float) -> Outcome[Any]:
        """The outcome of a call that succeeded after failures."""
        attempts = attempts_of(trail, started)
        made = len(attempts)
        attempts.append(_attempt(made, SUCCESS, trail, started, ended, None))
        return outcome_of(SUCCESS, value, None, None, {"trail": attempts}, None, None, made + 1, None)

    def leave(
        self,
        trail: Trail | None,
        step: Step,
        error: BaseException | None,
        value: Any,
        started: float | None,
        ended: float,
        permit: int,
        link: Link | None,
        barred: bool,
    ) -> Replay:
        """The last attempt, for the general path to weigh; or weighed, if the circuit bars the one to follow."""
        began = ended if started is None else started
        begun = began if trail is None or trail[1] is None else trail[1]
        replay = Replay(begun, ended, permit, link, error, value)
        if error is None or not barred:
            return replay.after(attempts_of(trail, started), began)
        replay.outcome = self.ended(trail, step, error, started, ended)
        return replay.after(replay.outcome.metadata["trail"], began)


def attempts_of(trail: Trail | None, started: float | None) -> list[Attempt]:
    """The records of failed attempts, the first one first."""
    failed: list[tuple[BaseException, float | None, Trail | None]] = []
    while trail is not None:
        failed.append(trail)
        trail = trail[2]
    return [
        _attempt(number, _kind(error), before, started, ended, error)
        for number, (error, ended, before) in enumerate(reversed(failed))
    ]


def _kind(error: BaseException) -> OutcomeKind:
    kind = plain_kind(type(error))
    assert kind is not None  # or the call had left before
    return kind


def _attempt(
    number: int,
    kind: OutcomeKind,
    before: Trail | None,
    started: float | None,
    ended: float | None,
    error: BaseException | None,
) -> Attempt:
    # One follows the other at once, so an attempt begins when the one before it ends.
    begun = started if before is None else before[1]
    service = 0.0 if begun is None or ended is None else ended - begun
    return attempt_of(number, kind, 0.0, 0.0, service, error, None)


def story_of(attempts: int, names: list[str], stopped_by: str | None = None) -> str:
    """What an exception that is raised after several attempts is told to say of them."""
    why = "" if stopped_by is None else f"; stopped by {stopped_by}"
    return f"{NOTE}{attempts} attempts ({', '.join(names)}){why}"


def annotate(error: BaseException, story: str) -> None:
    """Put a story on an exception; once, for the same object may come by again, by another guard or from a cache."""
    try:
        notes = getattr(error, "__notes__", ())
        if not any(isinstance(note, str) and note.startswith(NOTE) for note in notes):
            error.add_note(story)
    except Exception:  # a frozen exception takes no notes; it is raised all the same
        pass
