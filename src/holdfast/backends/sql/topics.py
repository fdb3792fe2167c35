"""Who wants to hear of which topic, in this process."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

_log = logging.getLogger("holdfast.store")


class Topics:
    """Listeners by topic. A listener that fails is logged, and hurts nobody else."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: dict[str, list[Callable[[], object]]] = {}
        self.own: dict[str, int] = {}
        """How often this process has woken each topic."""
        self.is_prompt = False
        """Whether somebody hears at once what other processes do."""

    def __bool__(self) -> bool:
        return bool(self._listeners)

    def add(self, topic: str, callback: Callable[[], object]) -> Subscription:
        with self._lock:
            self._listeners.setdefault(topic, []).append(callback)
        return Subscription(self, topic, callback)

    def remove(self, topic: str, callback: Callable[[], object]) -> None:
        with self._lock:
            listeners = self._listeners.get(topic, [])
            if callback in listeners:
                listeners.remove(callback)
            if not listeners:
                self._listeners.pop(topic, None)

    def count_own(self, topic: str) -> None:
        with self._lock:
            self.own[topic] = self.own.get(topic, 0) + 1

    def call(self, topic: str) -> None:
        for callback in tuple(self._listeners.get(topic, ())):
            try:
                callback()
            except Exception:
                _log.exception("a listener of the topic %r failed", topic)

    def call_all(self) -> None:
        """After a time of deafness."""
        for topic in tuple(self._listeners):
            self.call(topic)


class Subscription:
    def __init__(self, topics: Topics, topic: str, callback: Callable[[], object]) -> None:
        self._topics = topics
        self._topic = topic
        self._callback = callback

    @property
    def is_prompt(self) -> bool:
        return self._topics.is_prompt

    def close(self) -> None:
        self._topics.remove(self._topic, self._callback)
