"""How many statements or commands a call sends: by SQLite's own trace, and by what Redis monitors."""

import sqlite3
import sys
from collections import Counter
from collections.abc import Callable
from threading import get_ident
from typing import Any

import redis

MARK = "counted"
WRITES = ("INSERT", "UPDATE", "DELETE")
Counts = dict[str, int]


class SqliteTrace:
    """The statements of every connection that this process opens from now on, to one file or to any."""

    def __init__(self, path: str | None = None) -> None:
        self._path = path
        self._opening: dict[int, str] = {}
        self._connections: list[sqlite3.Connection] = []
        sys.addaudithook(self._heard)

    def _heard(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "sqlite3.connect":
            self._opening[get_ident()] = str(arguments[0])
        elif event == "sqlite3.connect/handle" and isinstance(arguments[0], sqlite3.Connection):
            path = self._opening.pop(get_ident(), None)
            if self._path is None or path == self._path:
                self._connections.append(arguments[0])

    def count(self, run: Callable[[], object], *, everywhere: bool = False) -> Counts:
        """Statements sent, and commits: by this thread and not by what runs in the background, or by all threads."""
        seen: list[str] = []
        caller = get_ident()

        def note(text: str) -> None:
            # For each step of a trigger the statement that set it off is told once more.
            again = seen[-1:] == [text] and text.lstrip().startswith((*WRITES, "WITH"))
            if (everywhere or get_ident() == caller) and not again:
                seen.append(text)

        self._trace(note)
        try:
            run()
        finally:
            self._trace(None)
        sent = [text.split(None, 1)[0] for text in map(str.lstrip, seen)]
        single = 0 if "BEGIN" in sent else sum(word in WRITES for word in sent)
        return {"sent": len(sent), "commits": sent.count("COMMIT") + single}

    def _trace(self, callback: Callable[[str], Any] | None) -> None:
        for connection in list(self._connections):
            try:
                connection.set_trace_callback(callback)
            except sqlite3.ProgrammingError:  # closed meanwhile
                self._connections.remove(connection)


class RedisMonitor:
    """The commands on one database: what clients sent (round trips), and what scripts ran besides."""

    def __init__(self, url: str) -> None:
        self._client = redis.Redis.from_url(url)
        self._marker = redis.Redis.from_url(url)
        self._number = self._client.get_connection_kwargs()["db"]

    def count(self, run: Callable[[], object]) -> Counts:
        sent: Counter[str] = Counter()
        inner: Counter[str] = Counter()
        client = ""
        self._marker.ping()  # connects, before anything is counted
        with self._client.monitor() as monitor:
            run()
            self._marker.echo(MARK)
            while MARK not in (command := monitor.next_command())["command"]:
                if command["db"] != self._number:
                    continue
                if command["client_type"] == "lua":
                    inner[client] += 1  # of the script that was sent just before
                else:
                    client = command["client_port"]
                    sent[client] += 1
        busiest = max(sent, key=lambda port: sent[port])  # the others run in the background
        return {"sent": sent[busiest], "inner": inner[busiest]}
