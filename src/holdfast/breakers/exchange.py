"""What a process and the store say to each other about one shared breaker. Each step is atomic and decided by
`machine/breaker_fleet.py`; a step that would change nothing costs nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from holdfast.breakers.share import Result, Share, Story, Token, When
from holdfast.machine import breaker_fleet as fleet
from holdfast.machine.breaker import CLOSED, HALF_OPEN, OPEN, Trigger
from holdfast.machine.breaker_record import BREAKER, TOPIC, BreakerRecord, is_news
from holdfast.store.change import change
from holdfast.store.ids import new_record_id
from holdfast.store.port import Store

Decide = Callable[[BreakerRecord | None], BreakerRecord | None]
_MADE = {CLOSED: Trigger.RECOVERED, OPEN: Trigger.RELAPSED}


class Terms(NamedTuple):
    """How evidence of several processes is combined, and as whom this one speaks."""

    process: str
    quorum: int
    window_us: int


class Exchange:
    """A conversation about one breaker, from the record as it was read on."""

    def __init__(self, store: Store, share: Share, terms: Terms, record: BreakerRecord | None) -> None:
        self._store = store
        self._share = share
        self._terms = terms
        self._record = record
        self._made: BreakerRecord | None = None  # by the last step, if it changed anything

    def talk(self) -> bool:
        """Tell what happened here, follow what is so, and see to the leave for probes. Whether that is all for now."""
        self._tell()
        self._follow()
        if self._record is not None and self._record.state != CLOSED:
            self._lend()
        return self._share.is_resting(self._record)

    def leave(self) -> None:
        """Tell what happened here, and give back what others could use."""
        share = self._share
        self._tell()
        tokens = share.give_up(before=float("inf"))
        if tokens:
            self._step(lambda found: fleet.give_back(found, self._now, tokens))
        if share.alone:
            self._step(lambda found: fleet.withdraw(found, self._now, self._terms.process))

    def _tell(self) -> None:
        share = self._share
        while (result := share.next_result()) is not None:
            try:
                self._settle(result)
            except BaseException:
                share.keep_result(result)
                raise
        story = share.story()
        if story is not None:
            try:
                self._publish(story)
            except BaseException:
                share.untell(story)
                raise

    @property
    def _now(self) -> int:
        return self._store.now()

    def _settle(self, result: Result) -> None:
        policy = self._share.circuit.policy
        words = self._words("half-open probes failed", result.error)
        probed = result.failed, result.duration

        def decide(found: BreakerRecord | None) -> BreakerRecord | None:
            return fleet.settle(found, self._now, result.token.id, probed, policy.verdict, self._open_us, words)

        self._step(decide)
        if self._made is not None and self._made.state != HALF_OPEN:
            self._follow(_MADE[self._made.circuit_state], result.error)

    def _publish(self, story: Story) -> None:
        share, process = self._share, self._terms.process
        if story.news == "close" and share.alone:
            self._step(lambda found: fleet.withdraw(found, self._now, process))
        elif story.news == "close":
            self._step(lambda found: fleet.recover(found, self._now, share.sight))
        elif story.news == "reopen" and not share.alone:
            words, left = self._words(story.rule, story.error), _micros(story.left)
            self._step(lambda found: fleet.relapse(found, self._now, share.sight, self._now + left, words))
        else:
            self._vote(story)

    def _vote(self, story: Story) -> None:
        share, terms = self._share, self._terms
        quorum = 1 if story.by_hand else terms.quorum

        def decide(found: BreakerRecord | None) -> BreakerRecord | None:
            now = self._now
            words = self._words(story.rule, story.error)
            trip = fleet.Trip(
                terms.process, share.sight, now + _micros(story.left), story.rounds, words, story.failures
            )
            return fleet.vote(found, share.name, now, trip, quorum, terms.window_us)

        self._step(decide)
        if self._made is not None and self._made.state == CLOSED:
            share.stay_alone()

    def _follow(self, made: Trigger | None = None, error: BaseException | None = None) -> None:
        share, now = self._share, self._now
        seen = fleet.view(self._record, now, self._open_us(0))
        share.follow(seen, self._when(now), made, error)

    def _open_us(self, rounds: int) -> int:
        return _micros(self._share.circuit.policy.open_seconds(rounds))

    def _when(self, now: int) -> When:
        here = self._share.circuit.clock.monotonic()
        return lambda micros: here + (micros - now) / 1e6

    def _lend(self) -> None:
        share, clock = self._share, self._share.circuit.clock
        assert self._record is not None
        here, seconds = clock.monotonic(), share.lease_seconds()
        if share.parked and fleet.read(self._record).wanted:
            given = share.give_up(before=here - share.hold)
            if given:
                self._step(lambda found: fleet.give_back(found, self._now, given))
        ageing = share.ageing(here, seconds)
        if ageing:
            self._renew(ageing, here, seconds)
        wanted = share.wants()
        if wanted:
            self._ask(wanted, here, seconds)

    def _renew(self, tokens: list[Token], here: float, seconds: float) -> None:
        names = {token.id for token in tokens}
        self._step(lambda found: fleet.renew(found, self._now, names, self._now + _micros(seconds)))
        held = set() if self._record is None else {name for name, _ in fleet.read(self._record).leases}
        for token in tokens:
            token.until = here + seconds if token.id in held else here

    def _ask(self, wanted: int, here: float, seconds: float) -> None:
        share, policy = self._share, self._share.circuit.policy
        names = [new_record_id(self._now) for _ in range(wanted)]

        def decide(found: BreakerRecord | None) -> BreakerRecord | None:
            now = self._now
            until = now + _micros(seconds)
            return fleet.lease(found, now, names, until, policy.probes, policy.out_of, self._open_us(0))

        self._step(decide)
        held = set() if self._made is None else {name for name, _ in fleet.read(self._made).leases}
        # Counted from before the question was sent, so that it ends here before it ends there.
        of = fleet.sight(self._made)
        share.grant([Token(name, of, here, here + seconds) for name in names if name in held])
        if not held:
            self._step(lambda found: fleet.want(found, self._now))
        self._follow()

    def _step(self, decide: Decide) -> None:
        """Change the record, unless it is as it should be already."""
        self._made = None
        if decide(self._record) is None:
            return
        before, after = change(self._store, BREAKER, self._share.name, decide, wake=_wake)
        self._made = after
        self._record = before if after is None else after

    def _words(self, rule: str, error: BaseException | None) -> str:
        """What opened the breaker, for people; an error's message might hold what must not be stored."""
        return f"{rule} in {self._terms.process}" + ("" if error is None else f" ({type(error).__name__})")


def _wake(before: BreakerRecord | None, after: BreakerRecord) -> str | None:
    if is_news(before, after):
        return TOPIC
    if before is None or before.fleet == after.fleet:
        return None
    was, now = fleet.read(before), fleet.read(after)
    return TOPIC if len(now.leases) < len(was.leases) or now.wanted > was.wanted else None


def _micros(seconds: float) -> int:
    return round(seconds * 1e6)
