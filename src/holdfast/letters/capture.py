"""Capture: a guarded call that fails for good becomes a dead letter before its caller sees the failure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from holdfast.core.clock import Clock
from holdfast.core.context import CURRENT, PARENT, ResilienceContext, TypedKey, context_of
from holdfast.core.outcome import Outcome, OutcomeKind
from holdfast.errors import PolicyError
from holdfast.letters.box import Kept, LetterBox
from holdfast.letters.entry import (
    OTHER,
    REPLAYABLE,
    SMALL,
    Arguments,
    Signatures,
    capped,
    domain_of,
    error_code_of,
    error_message_of,
    failure_type_of,
    function_name,
    unreplayable,
)
from holdfast.letters.events import LetterKept
from holdfast.letters.values import maybe_text, user
from holdfast.store.codec import plain
from holdfast.telemetry.causation import CAUSATION_FIELD, cause_of
from holdfast.telemetry.tracing import current_trace, trace_ids

if TYPE_CHECKING:
    from holdfast.guard.call import Call

IDEMPOTENCY_KEY: Final = TypedKey[str]("holdfast.idempotency_key")
"""The property under which a caller gives a call its idempotency key; it is kept with the letter."""

SOURCE: Final = "guard"
"""What the metadata of captured letters say of where they come from."""

BUFFERED: Final = "buffered"
SPOOLED: Final = "spooled"
"""What stands in the place of a letter's id while it waits for its writer, and for the store."""

REPLAYING: ContextVar[str | None] = ContextVar("holdfast_replaying", default=None)
"""The id of the letter whose replay this code runs in: its failure belongs to that letter, not to a new one."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """How a guard's failed calls are kept.

    `domain` is the guard's name unless given. `entity` names the argument that tells whose call it was (or computes it
    from all of them): replays of one entity keep their order. `expires_after` seconds make a letter expire. `refusals`
    False keeps only calls that ran. `limit` is the largest part kept, in bytes of JSON. `dedup` gives equal failures
    one key. `connection` gives the caller's own transaction to write in.

    `buffered` lets the caller have its failure before the letter is written: a thread writes, a batch in one commit.
    A process that is killed loses what it has not written yet.
    """

    domain: str | None = None
    entity: str | Callable[[Mapping[str, Any]], object] = "order_id"
    max_retries: int = 2
    expires_after: float | timedelta | None = None
    refusals: bool = True
    limit: int | None = None
    dedup: Callable[[Mapping[str, Any]], str | None] | None = None
    connection: Callable[[], Any] | None = None
    buffered: bool = False

    def __post_init__(self) -> None:
        if self.domain is not None and domain_of(self.domain) != self.domain:
            raise PolicyError(
                f"DeadLetter.domain must be lower-case words of letters, digits and underscores with dots between, at "
                f"most 64 characters, got {self.domain!r}; use {domain_of(self.domain)!r}"
            )
        if type(self.max_retries) is not int or self.max_retries < 0:
            raise PolicyError(f"DeadLetter.max_retries must be 0 or more replays, got {self.max_retries!r}")
        after = self.lifetime
        if after is not None and after <= timedelta(0):
            raise PolicyError(f"DeadLetter.expires_after must be above 0 seconds, got {self.expires_after!r}")
        if self.limit is not None and (type(self.limit) is not int or self.limit < 1):
            raise PolicyError(f"DeadLetter.limit must be a number of bytes, got {self.limit!r}")
        if type(self.buffered) is not bool:
            raise PolicyError(f"DeadLetter.buffered must be True or False, got {self.buffered!r}")

    @property
    def lifetime(self) -> timedelta | None:
        if self.expires_after is None or isinstance(self.expires_after, timedelta):
            return self.expires_after
        return timedelta(seconds=self.expires_after)


class Capture:
    """The keeper of one guard. `function_name` tells the registered name of a function, or None."""

    def __init__(
        self,
        guard: str,
        policy: DeadLetter,
        box: LetterBox,
        clock: Clock,
        function_name: Callable[[Callable[..., Any]], str | None],
    ) -> None:
        self.policy = policy
        self.domain = policy.domain or domain_of(guard)
        self._guard = guard
        self._box = box
        self._clock = clock
        self._function_name = function_name
        self._signatures = Signatures()

    async def keep(self, call: Call, ctx: ResilienceContext, outcome: Outcome[Any]) -> None:
        """Keep a final failure, timeout or refusal, once."""
        if not self._concerns(ctx, outcome):
            return
        try:
            connection = None if self.policy.connection is None else call.ask(self.policy.connection)
            entry = self.entry(call, ctx, outcome)
            if self.policy.buffered and connection is None and self._post(call, ctx, outcome, entry):
                return
            put = partial(self._box.put, entry, connection)
            # In the caller's transaction means in the caller's thread.
            kept = put() if connection is not None else await call.driver.offload(put, self._box.writers)
            _mark(outcome, kept)
            call.emit(_told(self.domain, ctx.call_id, entry["failure_type"], kept))
        except Exception as fault:  # the caller's own failure must reach the caller, whatever ours is
            self._box.lose(self.domain, fault)

    def describe(self) -> str:
        refusals = "failures and refusals" if self.policy.refusals else "failures"
        how = ", written in batches" if self.policy.buffered else ""
        return f"dead letter: final {refusals} are kept as {self.domain}{how}"

    def _post(self, call: Call, ctx: ResilienceContext, outcome: Outcome[Any], entry: dict[str, Any]) -> bool:
        """Leave the entry to be written soon. The mark and the metadata tell its id from then on."""
        mark, metadata = Mark(BUFFERED, _calls_around()), outcome.metadata
        emit, domain, call_id = call.setting.hub.emit, self.domain, ctx.call_id

        def settled(kept: Kept) -> None:
            mark.letter = metadata["letter"] = _name_of(kept)
            emit(_told(domain, call_id, entry["failure_type"], kept))

        metadata["letter"] = BUFFERED  # before the writer could have been here
        if not self._box.post(entry, settled):
            del metadata["letter"]
            return False
        _attach(outcome.error, mark)
        return True

    def _concerns(self, ctx: ResilienceContext, outcome: Outcome[Any]) -> bool:
        if not outcome.kind.is_failure and not (outcome.kind is OutcomeKind.REJECTED and self.policy.refusals):
            return False
        return REPLAYING.get() is None and not _kept_within(outcome.error, ctx)

    def entry(self, call: Call, ctx: ResilienceContext, outcome: Outcome[Any]) -> dict[str, Any]:
        """The arguments of `FailedOperationRepository.create` for a failed call."""
        policy = self.policy
        registered = self._function_name(call.fn)
        given = Arguments(call.fn, call.args, call.kwargs, self._signatures.of)
        limit = policy.limit or (SMALL if registered is None else REPLAYABLE)
        name = registered or function_name(call.fn)
        request = {**capped(given.request(name), limit), "function": name}
        can_replay = registered is not None and unreplayable(request) is None
        lifetime = policy.lifetime
        return {
            "domain": self.domain,
            "failure_type": failure_type_of(outcome),
            "error_message": error_message_of(outcome),
            "error_code": error_code_of(outcome),
            "entity_id": self._entity(given),
            "user_id": _user(given),
            "request_data": request,
            "metadata": {**capped(plain(self._metadata(call, ctx, outcome, given)), SMALL), "source": SOURCE},
            "max_retries": policy.max_retries,
            "recommended_action": "replay" if can_replay else "manual_check",
            "expires_at": None if lifetime is None else self._clock.wall() + lifetime,
            "dedup_key": None if policy.dedup is None else call.ask(self._dedup_key, given),
        }

    def _entity(self, given: Arguments) -> str | None:
        if not callable(self.policy.entity):
            found = None if self.policy.entity in given.masked else given.kept.get(self.policy.entity)
            return None if found is None else str(found)[:191]
        try:
            found = self.policy.entity(given.bound)
            return None if found is None else str(found)[:191]
        except Exception:  # user code; the letter is worth more than its order
            return None

    def _dedup_key(self, given: Arguments) -> str | None:
        assert self.policy.dedup is not None
        return maybe_text("dedup_key", self.policy.dedup(given.bound))

    def _metadata(self, call: Call, ctx: ResilienceContext, outcome: Outcome[Any], given: Arguments) -> dict[str, Any]:
        key = ctx.get(IDEMPOTENCY_KEY) or given.kept.get("idempotency_key")
        metadata: dict[str, Any] = {
            "source": SOURCE,
            "guard": self._guard,
            "call_id": ctx.call_id,
            "attempts": outcome.attempts,
            "outcome": outcome.kind.value,
            CAUSATION_FIELD: cause_of(ctx),
            **trace_ids(),
            **current_trace(),
        }
        optional = {
            "parent_call_id": ctx.parent_call_id,
            "reason": None if outcome.reason is None else str(outcome.reason),
            "stopped_by": outcome.stopped_by,
            "idempotency_key": key if isinstance(key, int | str) else None,
            "raw_domain": self._guard if self.domain == OTHER else None,
        }
        return metadata | {name: value for name, value in optional.items() if value is not None}


class Mark:
    """What a kept exception carries: its letter, and the calls around the one that kept it."""

    __slots__ = ("around", "letter")

    def __init__(self, letter: str | None, around: frozenset[str]) -> None:
        self.letter = letter
        self.around = around


def letter_id_of(error: BaseException | None) -> str | None:
    """The id of the dead letter that keeps this failure, if one does.

    "buffered" until it is written, where the guard's letters are; "spooled" while it waits for the store.
    """
    mark = getattr(error, "__holdfast_letter__", None)
    return mark.letter if isinstance(mark, Mark) else None


def _user(given: Arguments) -> int | str | None:
    """Whom the call was for. What is too long to be found by is no id, and still among the arguments."""
    found = given.kept.get("user_id")
    if not isinstance(found, int | str) or isinstance(found, bool):
        return None
    try:
        user(found)
    except ValueError:
        return None
    return found


def _kept_within(error: BaseException | None, ctx: ResilienceContext) -> bool:
    """Whether a guard inside this call has kept the failure already.

    Not by the mark alone: one exception object may be raised by many calls.
    """
    mark = getattr(error, "__holdfast_letter__", None)
    return isinstance(mark, Mark) and ctx.call_id in mark.around


def _told(domain: str, call_id: str, failure_type: str, kept: Kept) -> LetterKept:
    why = kept.rejected if kept.error is None else type(kept.error).__name__
    return LetterKept(domain, call_id, None if kept.letter is None else kept.letter.id, failure_type, kept.how, why)


def _mark(outcome: Outcome[Any], kept: Kept) -> None:
    if kept.is_kept:
        letter = outcome.metadata["letter"] = _name_of(kept)
        _attach(outcome.error, Mark(letter, _calls_around()))


def _attach(error: BaseException | None, mark: Mark) -> None:
    if error is not None:
        try:
            error.__holdfast_letter__ = mark  # type: ignore[attr-defined]  # ours
        except Exception:  # an exception that takes no attributes is kept all the same
            pass


def _name_of(kept: Kept) -> str | None:
    return kept.letter.id if kept.letter is not None else SPOOLED if kept.spooled else None


def _calls_around() -> frozenset[str]:
    """The ids of the guarded calls that this one was made in."""
    ids, link = set(), CURRENT.get()
    while link is not None:
        context = context_of(link)
        if context is not None:
            ids.add(context.call_id)
        link = link[PARENT]
    return frozenset(ids)
