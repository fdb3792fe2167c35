"""Sharing circuits between processes: one breaker for all that use the same store.

Local first: a guarded call asks and tells only its own circuit. A background thread tells the store of transitions and
probe results, hears what others decided (by a wake-up, and by looking now and then), and fetches leave for half-open
probes, of which the whole fleet together has no more than the policy allows. While the store is away each process
decides alone; joining changes nothing.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import islice
from queue import Empty, SimpleQueue
from typing import Final

from holdfast.breakers.events import SharingChanged
from holdfast.breakers.exchange import Exchange, Terms
from holdfast.breakers.share import SILENCE_S, Share
from holdfast.core.check import check_seconds, check_whole
from holdfast.core.clock import SYSTEM_CLOCK, Clock
from holdfast.core.forks import renew_in_forks
from holdfast.core.redact import redact
from holdfast.errors import PolicyError
from holdfast.guard.circuit import LiveCircuit
from holdfast.machine.breaker_record import BREAKER, TOPIC
from holdfast.store.codec import clean_text
from holdfast.store.port import Store, Subscription
from holdfast.telemetry.hub import Hub

POLL_S: Final = 0.5
RESTING_S: Final = 2.0
SETTLED_S: Final = 10.0
VOTE_WINDOW_S: Final = 60.0
_AT_ONCE: Final = 500
_STOPPING_S: Final = 5.0
_LONGEST_NAME: Final = BREAKER.keyed.get("id", 191)
_LOG: Final = logging.getLogger("holdfast.breakers")


@dataclass(frozen=True, slots=True)
class SharingStatus:
    """How the sharing goes. `since` is when the connection was last lost or found, `error` why it was lost."""

    url: str
    process: str
    is_connected: bool
    since: datetime | None
    error: str | None
    shared: tuple[str, ...]
    alone: tuple[str, ...]


class Sharing:
    """Shares circuits with every process on the store.

    A trip here opens the breaker everywhere once `quorum` processes have tripped within `vote_window` seconds; until
    then it opens only here. Without `background` nothing runs by itself: call `sync`.

    Raises PolicyError for a value that cannot work.
    """

    def __init__(
        self,
        store: Store,
        *,
        quorum: int = 1,
        vote_window: float = VOTE_WINDOW_S,
        poll: float = POLL_S,
        clock: Clock = SYSTEM_CLOCK,
        hub: Hub | None = None,
        background: bool = True,
    ) -> None:
        check_whole("Sharing.quorum", quorum, "use quorum=1 to open everywhere at the first trip")
        check_seconds("Sharing.vote_window", vote_window, f"use {VOTE_WINDOW_S:g}")
        check_seconds("Sharing.poll", poll, f"use {POLL_S:g}")
        if poll > SILENCE_S / 2:
            fix = "a store that is asked more rarely would seem to be away"
            raise PolicyError(f"Sharing.poll must be at most {SILENCE_S / 2:g} seconds, got {poll:g}; {fix}")
        self.store = store
        self._quorum, self._window_us, self._poll = quorum, round(vote_window * 1e6), poll
        self._clock = clock
        self._hub = hub
        self._background = background
        self._shares: dict[int, Share] = {}
        self._connected = False
        self._rests_for = 0.0
        self._asked_at: float | None = None
        self._since: datetime | None = None
        self._error: str | None = None
        self._thread: threading.Thread | None = None
        self._subscription: Subscription | None = None
        self._begin_process()
        renew_in_forks(self._after_fork)

    def attach(self, circuit: LiveCircuit, name: str | None = None) -> None:
        """Share the circuit under its own name or another; it follows the store from the next `sync` on.

        Raises PolicyError for a circuit that is shared elsewhere, and for a name that not every store can hold.
        """
        share = Share(circuit, clean_text(circuit.name if name is None else name), self._wake)
        if len(share.name) > _LONGEST_NAME:
            fix = f"give it a name of at most {_LONGEST_NAME}: Breaker(name=...)"
            raise PolicyError(f"a breaker of {len(share.name)} characters cannot be shared; {fix}")
        with circuit.lock:
            if circuit.remote is not None:
                raise PolicyError(f"circuit {circuit.name!r} is shared already; detach it there first")
            circuit.remote = share
        self._shares[id(circuit)] = share
        self._wake()
        self._start()

    def detach(self, circuit: LiveCircuit) -> None:
        """Let the circuit decide alone again; it stays as it is. Others get back what it held as that runs out."""
        share = self._shares.pop(id(circuit), None)
        if share is not None:
            circuit.remote = None

    @property
    def is_connected(self) -> bool:
        """Whether the store answered when it was last asked, and has not been silent since it was asked again."""
        asked = self._asked_at
        silent = asked is not None and self._clock.monotonic() - asked > SILENCE_S
        return self._connected and not silent

    @property
    def quorum(self) -> int:
        """How many processes must see an outage before all of them open."""
        return self._quorum

    def status(self) -> SharingStatus:
        shares = list(self._shares.values())
        names = tuple(sorted({share.name for share in shares}))
        alone = tuple(sorted({share.name for share in shares if share.alone}))
        return SharingStatus(self.store.url, self._process, self.is_connected, self._since, self._error, names, alone)

    @property
    def pause(self) -> float:
        """Seconds until the store is looked at again, unless somebody speaks up before: `poll`, or longer while nothing
        goes on at a store that tells of changes by itself."""
        told = self._subscription is not None and self._subscription.is_prompt
        return max(self._poll, self._rests_for) if told and self._connected else self._poll

    def sync(self) -> bool:
        """One exchange with the store about every circuit; False if it could not be reached."""
        with self._turn:
            self._asked_at = self._clock.monotonic()
            try:
                self._listen()
                shares, rests = iter(list(self._shares.values())), SETTLED_S
                while some := list(islice(shares, _AT_ONCE)):
                    rests = min(rests, self._exchange(some))
                self._rests_for = rests
            except Exception as error:  # whatever it is, calls go on without the store
                self._lose(error)
                return False
            finally:
                self._asked_at = None
            self._find()
            return True

    def close(self) -> None:
        """Stop sharing: give back what others could use, and let every circuit decide alone."""
        self._closing = True
        self._wake()
        thread, self._thread = self._thread, None
        if thread is not None and thread is not threading.current_thread():
            thread.join(_STOPPING_S)
        if thread is None or not thread.is_alive():
            self._leave()
        for share in list(self._shares.values()):
            self.detach(share.circuit)

    def __enter__(self) -> Sharing:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _begin_process(self) -> None:
        self._process = f"{socket.gethostname()}:{os.getpid()}:{os.urandom(3).hex()}"
        self._terms = Terms(self._process, self._quorum, self._window_us)
        # Only ever contended by two who sync at once; re-entrant, because a listener may sync.
        self._turn = threading.RLock()
        self._starting = threading.Lock()
        # A queue, for its `put` may interrupt itself: the collector or a signal may settle a probe anywhere.
        self._woken: SimpleQueue[None] = SimpleQueue()
        self._thread = None
        self._subscription = None
        self._asked_at = None
        self._closing = False

    def _after_fork(self) -> None:
        running = self._thread is not None
        for share in self._shares.values():
            share.forget()
        self._begin_process()
        if running:
            self._start()

    def _wake(self) -> None:
        _put(self._woken)

    def _start(self) -> None:
        with self._starting:
            if self._background and self._thread is None:
                self._closing = False
                self._thread = threading.Thread(target=self._run, name="holdfast-breakers", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        woken = self._woken
        while not self._closing:
            _drain(woken)
            self.sync()
            with suppress(Empty):
                woken.get(timeout=self.pause)

    def _listen(self) -> None:
        if not self._background or self._subscription is not None:
            return
        try:
            # Not self._wake: the store should not keep this alive.
            self._subscription = self.store.subscribe(TOPIC, partial(_put, self._woken))
        except Exception as error:  # wake-ups only hasten: looking now and then goes on
            _LOG.debug("%s: no wake-ups (%s)", self.store.url, redact(str(error)))

    def _exchange(self, shares: list[Share]) -> float:
        """For how long the store can be left alone."""
        asked = [share.circuit.clock.monotonic() for share in shares]
        names = list(dict.fromkeys(share.name for share in shares))
        records = dict(zip(names, self.store.get(BREAKER, names), strict=True))
        rests = SETTLED_S
        for share, at in zip(shares, asked, strict=True):
            share.heard(at)
            if not share.is_settled(records[share.name]):
                talk = Exchange(self.store, share, self._terms, records[share.name]).talk
                rests = min(rests, RESTING_S if talk() else 0.0)
        return rests

    def _find(self) -> None:
        if not self._connected:
            lost, self._error = self._error is not None, None
            self._connected, self._since = True, self._clock.wall()
            if lost:
                self._tell("%s is back: breakers are shared again", logging.INFO)

    def _lose(self, error: Exception) -> None:
        for share in list(self._shares.values()):
            share.lost()
        known, self._error = self._error is not None, redact(f"{type(error).__name__}: {error}")
        if self._connected or not known:
            self._connected, self._since = False, self._clock.wall()
            self._tell("%s is away: breakers are decided locally until it is back", logging.WARNING)

    def _tell(self, line: str, level: int) -> None:
        """Once when the store goes away, and once when it is back."""
        _LOG.log(level, line + "%s", self.store.url, f" ({self._error})" if self._error else "")
        if self._hub is not None:
            self._hub.emit(SharingChanged(self.store.url, "", self._connected, self._error))

    def _leave(self) -> None:
        if self._subscription is not None:
            self._subscription.close()
            self._subscription = None
        try:
            for share in _holders(self._shares.values()):
                Exchange(self.store, share, self._terms, self.store.get(BREAKER, (share.name,))[0]).leave()
        except Exception as error:
            _LOG.debug("%s: could not give leases back (%s); they run out", self.store.url, error)
        self._connected = False


def _holders(shares: Iterable[Share]) -> list[Share]:
    return [share for share in shares if share.parked or share.alone or share.has_something_to_tell()]


def _put(woken: SimpleQueue[None]) -> None:
    if woken.empty():
        woken.put(None)


def _drain(woken: SimpleQueue[None]) -> None:
    with suppress(Empty):
        while True:
            woken.get_nowait()
