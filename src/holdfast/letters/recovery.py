"""Recovery: a domain's letters go out again by themselves, gently, as soon as its breaker lets calls through.

The drain is the breaker's trial traffic. While the breaker is open nothing goes; once its time is over one letter goes
through the guarded function and takes the half-open permit like any call. Where that succeeds the next ones follow,
more at a time while they succeed as fast as before. It looks at the state of things and not at a signal, so a
signal that is missed costs a poll and no letter.

Replayed are refusals of an open breaker, and the failure types that a handler declares; of registered functions all
but programming errors. A failure that no breaker refused rests for `settle_s` first: its guard has only just given up.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from holdfast.core.check import check_seconds
from holdfast.errors import PolicyError, StoreError
from holdfast.letters.crew import Crew, Orders, run_round
from holdfast.letters.data import FailedOperationData
from holdfast.letters.entry import CIRCUIT_OPEN
from holdfast.letters.events import DrainEnded
from holdfast.letters.gates import Standing, Way
from holdfast.letters.heartbeat import Heart, Hold
from holdfast.letters.order import Queue
from holdfast.letters.pace import key_of, seen
from holdfast.letters.replay import Replayer, ReplayOutcome, ReplayResult
from holdfast.machine.dead_letter import LETTER, LetterRecord
from holdfast.machine.drain import DOMAIN, Batch, Pace, begin_trial, recovered, trial_due
from holdfast.store import lease
from holdfast.store.change import change
from holdfast.store.query import Condition, among, equal

_BEATS: Final = 4
_REFUSAL_RESTS_S: Final = 300.0
_MOST_REFUSED: Final = 20_000
_NOT_TRIED: Final = frozenset({ReplayOutcome.REFUSED, ReplayOutcome.SKIPPED})
EMPTY: Final = "empty"
Waiting = dict[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class RecoveryPolicy:
    """How letters drain: how many at once, how long a fresh failure rests, and the lease of the one who drains.

    A domain that has drained for `turn_s` seconds lets the others have their turn before it goes on.
    """

    concurrency: int = 8
    settle_s: float = 30.0
    lease_s: float = 60.0
    turn_s: float = 30.0

    def __post_init__(self) -> None:
        if self.concurrency < 1:
            raise PolicyError(
                f"RecoveryPolicy.concurrency must be at least 1, got {self.concurrency}; use 1 for one by one"
            )
        check_seconds("RecoveryPolicy.lease_s", self.lease_s, "use 60")
        check_seconds("RecoveryPolicy.turn_s", self.turn_s, "use 30")


@dataclass(slots=True)
class Drained:
    """What a drain of a domain came to, and why it ended; `next_s` is when to look again, where that is known.

    `rounds` are those in which something was tried: letters that a handler refuses are no work.
    """

    domain: str
    reason: str = ""
    rounds: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    next_s: float | None = None

    def add(self, results: Sequence[ReplayResult]) -> None:
        self.rounds += any(result.outcome not in _NOT_TRIED for result in results)
        self.counts.update(result.outcome.value for result in results)

    @property
    def succeeded(self) -> int:
        return self.counts[ReplayOutcome.SUCCEEDED.value]

    @property
    def failed(self) -> int:
        return self.counts[ReplayOutcome.FAILED.value]


class Recovery:
    """Drains the domains that can be replayed in this process, each by one worker at a time on the whole store."""

    def __init__(self, replayer: Replayer, policy: RecoveryPolicy | None = None) -> None:
        self._replayer = replayer
        self._policy = RecoveryPolicy() if policy is None else policy
        self._store = replayer.repository.store
        self._heart = Heart(self._extend, self._policy.lease_s / _BEATS)
        self._refused: dict[str, float] = {}  # until when a letter that was refused here is not looked at again

    def run(self, stop: threading.Event | None = None, waiting: Waiting | None = None) -> list[Drained]:
        """Drain every domain that has something due, each for its turn. A domain that fails leaves the others alone.

        `waiting` is what `waiting()` has just said; without it that is asked here.
        """
        halt = threading.Event() if stop is None else stop
        drained = []
        failures = []
        for domain, types in sorted((self.waiting() if waiting is None else waiting).items()):
            if halt.is_set():
                break
            try:
                if self._has_due(domain, types):
                    drained.append(self.drain(domain, halt, self._policy.turn_s))
            except Exception as error:  # raised when the others have had their turn
                failures.append(error)
        if failures:
            raise failures[0]
        return drained

    def next_s(self, waiting: Waiting | None = None) -> float | None:
        """Seconds until a letter that waits for its next attempt is due; None when none waits."""
        dues = []
        known = self.waiting() if waiting is None else waiting
        now = self._store.now() if known else 0
        for domain, types in known.items():
            where = (*equal(domain=domain), among("failure_type", types), Condition("due_at", ">", now))
            dues += [letter.due_at for letter in self._store.page(LETTER, where, by="due_at", limit=1)]
        return min(((due - now) / 1e6 for due in dues if due is not None), default=None)

    def waiting(self) -> Waiting:
        """The failure types with pending letters that recover by themselves, by domain."""
        handlers = self._replayer.handlers
        waiting: Waiting = {}
        for domain, kind in self._store.tally(LETTER, ("domain", "failure_type"), equal(status="pending")):
            if handlers.recovers(domain, kind):
                waiting[domain] = (*waiting.get(domain, ()), kind)
        return waiting

    def drain(self, domain: str, stop: threading.Event | None = None, turn_s: float | None = None) -> Drained:
        """Replay what is due in the domain until nothing is left, the breaker refuses, or another worker is at it.

        With `turn_s`, not much longer than so many seconds.
        """
        result = Drained(domain)
        standing = self._standing(domain)
        result.reason = self._closed(domain, standing, result)
        if result.reason:
            return result
        name = f"drain:{domain}"
        token = lease.acquire(self._store, name, self._policy.lease_s)
        if token is None:
            result.reason = "another worker drains it"
            return result
        began = self._replayer.clock.monotonic()
        hold, halt = Hold(name, token), threading.Event() if stop is None else stop
        ends = None if turn_s is None else began + turn_s
        try:
            with self._heart.holding(hold), self._replayer.heart.awake(), Crew(self._policy.concurrency) as crew:
                result.reason = self._rounds(domain, result, crew, hold, halt, ends)
        finally:
            self._let_go(hold)
            self._tell(result, self._replayer.clock.monotonic() - began)
        return result

    def _rounds(
        self, domain: str, result: Drained, crew: Crew, hold: Hold, stop: threading.Event, ends: float | None
    ) -> str:
        """Round after round; why it ended."""
        replayer, pace, batch, begun = self._replayer, Pace(), Batch(), False
        has_breaker = replayer.gates.has_breaker(domain)
        types = self.waiting().get(domain, ())
        queue = Queue(self._store, domain, types, key_of=key_of(replayer.handlers, domain), is_ready=self._is_ready)
        while not stop.is_set():
            standing = self._standing(domain, begun)
            if reason := self._closed(domain, standing, result, begun):
                return reason
            if hold.lost:
                return "the lease was lost"
            if ends is not None and replayer.clock.monotonic() >= ends:
                result.next_s = 0.0
                return "its turn is over"
            trial = standing.way is Way.TRIAL
            letters = queue.next(1 if trial else min(pace.width, batch.size))
            if not letters:
                return EMPTY
            if trial and not begun and not self._begin_trial(domain):
                return "another worker tries it"
            orders = Orders(partial(_trigger, trial=trial, guarded=has_breaker), stop.is_set)
            results = run_round(replayer, crew, letters, orders)
            result.add(results)
            self._remember_refused(results)
            # A letter that is refused tried nothing: the trial is the next one's.
            begun = trial and all(one.outcome in _NOT_TRIED for one in results)
            now_seen = seen(results)
            if now_seen.succeeded:
                change(self._store, DOMAIN, domain, recovered)
            if now_seen.returned and not now_seen.succeeded:
                return _why_returned(results, result)
            batch = batch.after(now_seen.succeeded + now_seen.failed, now_seen.failed)
            pace = pace.after(now_seen, batch.size)
            if pace.rest_s:
                replayer.clock.wait(stop, pace.rest_s)
        return "stopped"

    def _standing(self, domain: str, begun: bool = False) -> Standing:
        """How the domain stands for us. Who may not try yet asks for no leave to: live calls need it meanwhile."""
        gates = self._replayer.gates
        return gates.standing(domain, knocks=begun or trial_due(gates.record(domain), self._store.now()))

    def _closed(self, domain: str, standing: Standing, result: Drained, begun: bool = False) -> str:
        """Why nothing may go now; empty when something may. `begun`: our own trial waits for its letter."""
        result.next_s = standing.retry_after
        if standing.way is Way.BARRED:
            return standing.reason
        if standing.way is Way.TRIAL:
            if standing.busy:
                return "live calls try it already"
            if begun:
                return ""
            found, now = self._replayer.gates.record(domain), self._store.now()
            if not trial_due(found, now):
                assert found is not None
                assert found.due_at is not None
                result.next_s = (found.due_at - now) / 1e6
                return f"the next trial is due in {result.next_s:.0f} s"
        return ""

    def _begin_trial(self, domain: str) -> bool:
        now = self._store.now()
        return change(self._store, DOMAIN, domain, lambda found: begin_trial(found, domain, now))[1] is not None

    def _has_due(self, domain: str, types: tuple[str, ...]) -> bool:
        where = (*equal(domain=domain), among("failure_type", types), Condition("due_at", "<=", self._store.now()))
        return bool(self._store.page(LETTER, where, by="due_at", limit=1))

    def _remember_refused(self, results: Sequence[ReplayResult]) -> None:
        """Let letters rest that a handler refused, or each look at the store would ask, and tell, the same again."""
        until = self._replayer.clock.monotonic() + _REFUSAL_RESTS_S
        self._refused.update({one.id: until for one in results if one.outcome is ReplayOutcome.REFUSED})
        if len(self._refused) > _MOST_REFUSED:
            self._refused = dict(list(self._refused.items())[-_MOST_REFUSED // 2 :])

    def _is_ready(self, letter: LetterRecord, now: int) -> bool:
        if self._refused.get(letter.id, 0.0) > self._replayer.clock.monotonic():
            return False
        settled = now - letter.created_at >= self._policy.settle_s * 1e6
        return settled or letter.retry_count > 0 or letter.failure_type == CIRCUIT_OPEN

    def _extend(self, name: str, token: str) -> bool:
        return lease.extend(self._store, name, token, self._policy.lease_s)

    def _let_go(self, hold: Hold) -> None:
        try:
            lease.release(self._store, hold.id, hold.token)
        except StoreError:
            return  # it ends by itself

    def _tell(self, result: Drained, took: float) -> None:
        if result.rounds:
            counts = result.counts
            self._replayer.hub.emit(
                DrainEnded(
                    result.domain, "", "recovery", result.reason, result.succeeded, result.failed,
                    counts[ReplayOutcome.RETURNED.value], result.rounds, took,
                )
            )  # fmt: skip


def _trigger(letter: FailedOperationData, *, trial: bool, guarded: bool) -> str:
    """The resolution type of a letter that drains."""
    if trial:
        return "auto_replay_recovery"
    return "auto_replay_circuit_close" if guarded and not letter.retry_count else "scheduled_batch"


def _why_returned(results: Sequence[ReplayResult], result: Drained) -> str:
    one = next(r for r in results if r.outcome is ReplayOutcome.RETURNED)
    result.next_s = one.retry_after
    return one.reason
