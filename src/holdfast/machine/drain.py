"""How fast dead letters go out again, and when a silent domain is tried: decisions only.

A *batch* has a size that shrinks when many entries fail. A *pace* is how many entries a drain sends at once: it begins
with one, doubles while all goes well, and halves when entries fail or slow down. A *domain* remembers, for all hosts
that share a store, whether its replay is paused, when the next trial is due and which late entries were told of.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from holdfast.store.record import Index, Kind, evolve

TRIAL_WAITS_S: Final = (60, 120, 240, 480, 540)
"""The seconds to the next trial after so many failed ones; the last value stays."""

SMALLEST_BATCH: Final = 10
LARGEST_BATCH: Final = 100
FAILING_SHARE: Final = 0.2
CLEAN_BATCHES: Final = 3
LARGEST_SHARE: Final = 25
MOMENT_S: Final = 0.1
SLOW_FACTOR: Final = 2.0

# trouble in a row -> seconds of rest before the next round; the last value stays
_RESTS_S: Final = (0.0, 0.25, 0.5, 1.0, 2.0, 5.0)
_SMOOTHING: Final = 0.2
_CREEP: Final = 1.25
_SECOND: Final = 1_000_000


class Batch(NamedTuple):
    """How many entries are taken at a time; `clean` batches in a row had no failure."""

    size: int = 50
    clean: int = 0

    def after(self, done: int, failed: int) -> Batch:
        """The next batch: a fifth smaller when a fifth failed, five larger after three clean ones."""
        if done <= 0:
            return self
        if failed >= FAILING_SHARE * done:
            return Batch(max(SMALLEST_BATCH, self.size * 4 // 5), 0)
        if failed:
            return Batch(self.size, 0)
        if self.clean + 1 < CLEAN_BATCHES:
            return Batch(self.size, self.clean + 1)
        return Batch(min(LARGEST_BATCH, self.size + 5), 0)


class Share(NamedTuple):
    """How many entries are acquired in one step, ahead of their turn: as many as are through in a moment.

    A process that dies costs each of them an attempt, so slow entries are acquired one by one. `seconds` is what one
    takes; None: nobody knows yet.
    """

    seconds: float | None = None

    @property
    def size(self) -> int:
        if self.seconds is None:
            return 1
        return max(1, min(LARGEST_SHARE, int(MOMENT_S / max(self.seconds, MOMENT_S / LARGEST_SHARE))))

    def after(self, seconds: float) -> Share:
        """The share when one more entry took so long."""
        if self.seconds is None:
            return Share(seconds)
        return Share(self.seconds + _SMOOTHING * (seconds - self.seconds))


class Round(NamedTuple):
    """What a round of replays came to; `seconds` is what one entry took, None if nothing ran."""

    succeeded: int = 0
    failed: int = 0
    returned: int = 0
    seconds: float | None = None


class Pace(NamedTuple):
    """`width` entries at once. `baseline` is what one takes when all is well, `troubles` counts bad rounds in a row.

    Once it has been `cautious`, the width grows by one a round and no longer doubles.
    """

    width: int = 1
    cautious: bool = False
    baseline: float | None = None
    troubles: int = 0

    def after(self, seen: Round, most: int) -> Pace:
        """The pace of the next round, never above `most`."""
        done = seen.succeeded + seen.failed + seen.returned
        if not done:
            return self
        if seen.returned:
            # Somebody else has the permits or the slots: live calls come first.
            return Pace(1, True, self.baseline, self.troubles + 1)
        if seen.failed >= FAILING_SHARE * done or self._is_slow(seen):
            return Pace(max(1, min(self.width, most) // 2), True, self._baseline(seen), self.troubles + 1)
        if seen.failed:
            return Pace(min(self.width, most), self.cautious, self._baseline(seen), 0)
        wider = self.width + 1 if self.cautious else self.width * 2
        return Pace(max(1, min(wider, most)), self.cautious, self._baseline(seen), 0)

    @property
    def rest_s(self) -> float:
        """Seconds to leave to others before the next round."""
        return _RESTS_S[min(self.troubles, len(_RESTS_S) - 1)]

    def _is_slow(self, seen: Round) -> bool:
        return bool(self.baseline) and seen.seconds is not None and seen.seconds >= SLOW_FACTOR * (self.baseline or 0.0)

    def _baseline(self, seen: Round) -> float | None:
        if seen.seconds is None or not self.baseline:
            return seen.seconds or self.baseline
        if self._is_slow(seen):
            # A dependency that stays slower than it was must not be drained one by one for ever.
            return self.baseline * _CREEP
        return self.baseline + _SMOOTHING * (seen.seconds - self.baseline)


class DomainRecord(NamedTuple):
    """What hosts agree on for one domain. `due_at` is when the next trial may begin; None: at once.

    `told_at` and `told_id` are the youngest entry whose missed service level was told.
    """

    id: str
    version: int
    due_at: int | None
    trials: int
    paused: int
    paused_until: int | None
    paused_by: str
    pause_reason: str
    told_at: int | None
    told_id: str | None


DOMAIN: Final = Kind("replay_domain", DomainRecord, indexes=(Index((), "due_at"),))


def pause(found: DomainRecord | None, id: str, by: str, reason: str, until: int | None) -> DomainRecord:
    """Nothing of the domain is replayed until it is resumed, or until the given time."""
    if found is None:
        return _new(id)._replace(paused=1, paused_until=until, paused_by=by, pause_reason=reason)
    return evolve(found, paused=1, paused_until=until, paused_by=by, pause_reason=reason)


def resume(found: DomainRecord | None) -> DomainRecord | None:
    if found is None or not found.paused:
        return None
    return evolve(found, paused=0, paused_until=None)


def is_paused(found: DomainRecord | None, now: int) -> bool:
    return found is not None and bool(found.paused) and (found.paused_until is None or now < found.paused_until)


def trial_due(found: DomainRecord | None, now: int) -> bool:
    return found is None or found.due_at is None or found.due_at <= now


def begin_trial(found: DomainRecord | None, id: str, now: int) -> DomainRecord | None:
    """One host tries one entry; None when another one has just tried.

    The next trial is set as if this one failed, so a host that dies over it delays the next one and no more.
    """
    if not trial_due(found, now):
        return None
    trials = 0 if found is None else found.trials
    due = now + TRIAL_WAITS_S[min(trials, len(TRIAL_WAITS_S) - 1)] * _SECOND
    if found is None:
        return _new(id)._replace(due_at=due, trials=1)
    return evolve(found, due_at=due, trials=trials + 1)


def recovered(found: DomainRecord | None) -> DomainRecord | None:
    """The domain answers again: the next outage's first trial comes at once."""
    if found is None or (found.due_at is None and not found.trials):
        return None
    return evolve(found, due_at=None, trials=0)


def tell(
    found: DomainRecord | None, id: str, since: tuple[int, str] | None, upto: tuple[int, str]
) -> DomainRecord | None:
    """Everything from `since` up to this entry is told of now; None when another host was faster."""
    at, entry = upto
    if told_upto(found) != since:
        return None
    if found is None:
        return _new(id)._replace(told_at=at, told_id=entry)
    return evolve(found, told_at=at, told_id=entry)


def told_upto(found: DomainRecord | None) -> tuple[int, str] | None:
    """The youngest entry that was told of: when it was created, and its id."""
    return None if found is None or found.told_at is None else (found.told_at, found.told_id or "")


def _new(id: str) -> DomainRecord:
    return DomainRecord(id, 1, None, 0, 0, None, "", "", None, None)
