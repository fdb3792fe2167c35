"""Hears of what other processes do where a database cannot tell by itself: looks now and then."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Final

from holdfast.backends.sql.topics import Topics

PROMPT_S: Final = 0.5
Look = Callable[[], Mapping[str, int] | None]


class Watcher(threading.Thread):
    """Calls the listeners of topics that another process has woken, soon after it.

    `look` says how often each topic was woken, by anybody; None when nothing has changed or it cannot be seen now.
    """

    def __init__(self, look: Look, topics: Topics, every: float, done: Callable[[], object]) -> None:
        super().__init__(name="holdfast-watcher", daemon=True)
        self._look = look
        self._topics = topics
        self._every = every
        self._done = done
        self._stopped = threading.Event()
        self._seen: dict[str, tuple[int, int]] = {}
        self._compare(call=False)
        topics.is_prompt = every < PROMPT_S

    def stop(self) -> None:
        self._stopped.set()
        if self is not threading.current_thread():
            self.join()

    def run(self) -> None:
        try:
            while not self._stopped.wait(self._every):
                self._compare(call=True)
        finally:
            self._topics.is_prompt = False
            self._done()

    def _compare(self, *, call: bool) -> None:
        own = dict(self._topics.own)
        counts = self._look()
        for topic, number in (counts or {}).items():
            before, own_before = self._seen.get(topic, (0, 0))
            ours = own.get(topic, 0)
            self._seen[topic] = number, ours
            if call and number - before > ours - own_before:
                self._topics.call(topic)
