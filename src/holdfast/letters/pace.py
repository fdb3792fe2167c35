"""Replaying many letters: rounds of them in a few threads, in batches that adapt to how they fare."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any

from holdfast.core.clock import Clock
from holdfast.errors import PolicyError
from holdfast.letters.crew import Crew, Orders, run_round
from holdfast.letters.data import letter_of
from holdfast.letters.gates import Way
from holdfast.letters.order import KeyOf, Queue, entity_of
from holdfast.letters.replay import Replayer, ReplayOutcome, ReplayResult
from holdfast.machine.dead_letter import LETTER, LetterRecord
from holdfast.machine.drain import Batch, Round
from holdfast.store.query import equal

if TYPE_CHECKING:
    from holdfast.letters.handlers import ReplayHandlers
    from holdfast.store.port import Store


def seen(results: Iterable[ReplayResult]) -> Round:
    """What a round came to, for the machine."""
    results = list(results)
    counts = Counter(result.outcome for result in results)
    ran = [r.duration_s for r in results if r.outcome in (ReplayOutcome.SUCCEEDED, ReplayOutcome.FAILED)]
    failed = counts[ReplayOutcome.FAILED] + counts[ReplayOutcome.UNSETTLED]
    return Round(counts[ReplayOutcome.SUCCEEDED], failed, counts[ReplayOutcome.RETURNED], median(ran) if ran else None)


@dataclass(frozen=True, slots=True)
class BatchPolicy:
    """How a batch replay goes: letters at most, in all and by domain; how many at once; letters per second.

    Domains in `priority` come first, in that order.
    """

    limit: int = 1000
    concurrency: int = 8
    caps: Mapping[str, int] = field(default_factory=dict)
    priority: tuple[str, ...] = ()
    per_second: float | None = None

    def __post_init__(self) -> None:
        if self.concurrency < 1:
            raise PolicyError(f"BatchPolicy.concurrency must be at least 1, got {self.concurrency}")
        if self.per_second is not None and self.per_second <= 0:
            raise PolicyError(
                f"BatchPolicy.per_second must be above 0, got {self.per_second}; leave it out for no limit"
            )


@dataclass(slots=True)
class BatchResult:
    """What a batch replay came to: results by outcome, and why domains were left before they were empty."""

    counts: Counter[str] = field(default_factory=Counter)
    left: dict[str, str] = field(default_factory=dict)
    results: list[ReplayResult] = field(default_factory=list)

    @property
    def done(self) -> int:
        return sum(self.counts.values())

    def add(self, results: Sequence[ReplayResult]) -> None:
        self.counts.update(result.outcome.value for result in results)
        self.results.extend(results)


def replay_many(
    replayer: Replayer,
    domain: str | None = None,
    *,
    failure_type: str | None = None,
    policy: BatchPolicy | None = None,
    trigger: str = "scheduled_batch",
    by: int | str | None = None,
    stop: threading.Event | None = None,
) -> BatchResult:
    """Replay what is due, of one domain or of all that can be replayed here, oldest first and in order per entity.

    A domain whose breaker opens is left at once.
    """
    policy = BatchPolicy() if policy is None else policy
    store = replayer.repository.store
    result = BatchResult()
    domains = [domain] if domain is not None else _ranked(replayer.handlers.domains, policy.priority)
    with Crew(policy.concurrency) as crew, replayer.heart.awake():
        for name in domains:
            types = [failure_type] if failure_type is not None else pending_types(store, name)
            run = _Run(replayer, crew, name, types, policy, trigger, by, stop or threading.Event())
            reason = run.go(min(policy.caps.get(name, policy.limit), policy.limit - result.done), result)
            if reason is not None:
                result.left[name] = reason
    return result


class _Run:
    """The batch replay of one domain."""

    def __init__(
        self,
        replayer: Replayer,
        crew: Crew,
        domain: str,
        types: Collection[str],
        policy: BatchPolicy,
        trigger: str,
        by: int | str | None,
        stop: threading.Event,
    ) -> None:
        self._replayer = replayer
        self._crew = crew
        self._domain = domain
        self._policy = policy
        self._stop = stop
        self._orders = Orders(lambda op: trigger, stop.is_set, by)
        store = replayer.repository.store
        self._queue = Queue(store, domain, types, key_of=key_of(replayer.handlers, domain))

    def go(self, most: int, result: BatchResult) -> str | None:
        """Why it ended before the domain was empty; None when it was."""
        batch, left = Batch(), most
        clock = self._replayer.clock
        while left > 0:
            standing = self._replayer.gates.standing(self._domain)
            if standing.way is Way.BARRED:
                return standing.reason
            size = 1 if standing.way is Way.TRIAL else min(batch.size, left)
            letters = self._queue.next(size)
            if not letters:
                return None
            began = clock.monotonic()
            results = run_round(self._replayer, self._crew, letters, self._orders)
            result.add(results)
            left -= len(results)
            if self._stop.is_set():
                return "stopped"
            if barred := next((one for one in results if one.domain_barred), None):
                return barred.reason
            round_ = seen(results)
            batch = batch.after(round_.succeeded + round_.failed, round_.failed)
            _slow_down(clock, self._stop, len(results), clock.monotonic() - began, self._policy.per_second)
        return "the limit was reached" if self._queue.next(1) else None


def pending_types(store: Store, domain: str) -> list[str]:
    """The failure types of which the domain has pending letters."""
    return [str(kind) for (kind,) in store.tally(LETTER, ("failure_type",), equal(domain=domain, status="pending"))]


def key_of(handlers: ReplayHandlers, domain: str) -> KeyOf | None:
    """What keeps its order in the domain, where a handler says so; None: the entity does."""
    custom = next((route.entity_key for route in handlers.routes(domain) if route.entity_key is not None), None)
    if custom is None:
        return None

    def key(letter: LetterRecord) -> Any:
        op = letter_of(letter)
        route = handlers.find(op)
        if route is None or route.entity_key is None:
            return entity_of(letter)
        try:
            found = route.entity_key(op)
            hash(found)
        except Exception:  # user code: an odd letter must not keep the others of its domain back
            return entity_of(letter)
        return found

    return key


def _ranked(domains: Collection[str], priority: Sequence[str]) -> list[str]:
    first = [name for name in priority if name in domains]
    return [*first, *sorted(set(domains) - set(first))]


def _slow_down(clock: Clock, stop: threading.Event, done: int, took: float, per_second: float | None) -> None:
    if per_second is not None and (wait := done / per_second - took) > 0:
        clock.wait(stop, wait)
