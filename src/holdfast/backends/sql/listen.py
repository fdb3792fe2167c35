"""Hears of what other processes do with a PostgreSQL database: LISTEN, in one thread."""

from __future__ import annotations

import logging
import os
import selectors
import threading
import time
from collections.abc import Callable
from typing import Final

import psycopg

from holdfast.backends.sql.topics import Topics

CHANNEL: Final = "holdfast"
FIRST_S: Final = 2.0
_log = logging.getLogger("holdfast.store")


def message(sender: str, topic: str) -> str:
    return f"{sender}:{topic}"


class Listener(threading.Thread):
    """Calls the listeners of topics that others have woken. Connects again when the connection is lost."""

    def __init__(self, connect: Callable[[], psycopg.Connection[tuple[object, ...]]], topics: Topics, own: str) -> None:
        super().__init__(name="holdfast-postgres-listener", daemon=True)
        self._connect = connect
        self._topics = topics
        self._own = own
        self._stopped = False
        self._cleans_up = False
        self._nudge_out, self._nudge_in = os.pipe()
        self._tried = threading.Event()

    def wait_until_listening(self) -> None:
        """Until it listens, or has found that it cannot yet."""
        self._tried.wait(FIRST_S)

    def stop(self) -> None:
        self._stopped = True
        if self is threading.current_thread():  # a listener closes the store; the loop ends by itself
            self._cleans_up = True
            return
        os.write(self._nudge_in, b".")
        self.join()
        # Not by the thread itself, which may have ended before it was nudged.
        self._close_pipe()

    def run(self) -> None:
        pause = 0.1
        was_deaf = False
        while not self._stopped:
            try:
                with self._connect() as connection:
                    connection.execute(f"LISTEN {CHANNEL}", prepare=False)
                    self._topics.is_prompt = True
                    self._tried.set()
                    pause = 0.1
                    if was_deaf:
                        self._topics.call_all()
                    self._listen(connection)
            except psycopg.Error as error:
                _log.debug("the listener has lost its connection: %s", error)
            was_prompt, self._topics.is_prompt = self._topics.is_prompt, False
            if was_prompt and not self._stopped:
                self._topics.call_all()  # who relies on being told looks for itself from now on
            was_deaf = True
            self._tried.set()
            if not self._stopped:
                self._wait(None, pause)
                pause = min(2.0, pause * 2)
        if self._cleans_up:
            self._close_pipe()

    def _close_pipe(self) -> None:
        os.close(self._nudge_in)
        os.close(self._nudge_out)

    def _listen(self, connection: psycopg.Connection[tuple[object, ...]]) -> None:
        while not self._stopped:
            for heard in connection.notifies(timeout=0):
                sender, _, topic = heard.payload.partition(":")
                if sender != self._own:
                    self._topics.call(topic)
            if not self._stopped:
                self._wait(connection, None)

    def _wait(self, connection: psycopg.Connection[tuple[object, ...]] | None, seconds: float | None) -> None:
        """Until there is something to read, or somebody stops us."""
        give_up = None if seconds is None else time.monotonic() + seconds
        with selectors.DefaultSelector() as selector:
            selector.register(self._nudge_out, selectors.EVENT_READ)
            if connection is not None:
                selector.register(connection, selectors.EVENT_READ)
            selector.select(None if give_up is None else max(0.0, give_up - time.monotonic()))
