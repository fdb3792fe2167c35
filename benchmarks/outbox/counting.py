"""How many statements PostgreSQL gets, and how many commits: told by its own log, whoever sends them. Needs psycopg."""

import re
from collections.abc import Callable
from pathlib import Path
from time import monotonic, sleep
from urllib.parse import parse_qs, urlsplit

import psycopg

PREFIX = "%d %p "
_LINE = re.compile(r"^(\S+) (\d+) LOG:  (?:statement|execute [^:]*): (\w+)", re.MULTILINE)
_BEGIN, _END = ("BEGIN", "START"), ("COMMIT", "ROLLBACK", "END", "ABORT")
_MARK = "the counting ends here"


class PostgresLog:
    """Reads the log of the private server, whose log lines begin with `PREFIX`, from now on."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._database = parts.path.strip("/")
        self._log = Path(parse_qs(parts.query)["host"][0]) / "log"
        self._connection = psycopg.connect(url, autocommit=True)

    def count(self, run: Callable[[], object]) -> dict[str, float]:
        """Statements apart from BEGIN and COMMIT, and commits: explicit ones, and of each statement by itself."""
        self._tell("all")
        start = self._log.stat().st_size
        run()
        own = self._connection.info.backend_pid
        self._connection.execute(f"SELECT '{_MARK}'")
        give_up = monotonic() + 10
        while _MARK not in (text := self._log.read_bytes()[start:].decode(errors="replace")) and monotonic() < give_up:
            sleep(0.01)  # the log is written by another process
        self._tell("none")
        statements = commits = 0
        inside: set[str] = set()
        for database, process, word in _LINE.findall(text):
            word = word.upper()
            if database != self._database or int(process) == own:
                continue
            if word in _BEGIN:
                inside.add(process)
            elif word in _END:
                inside.discard(process)
                commits += word in ("COMMIT", "END")
            else:
                statements += 1
                commits += process not in inside
        return {"statements": statements, "commits": commits}

    def _tell(self, what: str) -> None:
        self._connection.execute(f"ALTER SYSTEM SET log_statement = '{what}'")
        self._connection.execute("SELECT pg_reload_conf()")
        sleep(0.2)  # every backend reads its settings by itself
