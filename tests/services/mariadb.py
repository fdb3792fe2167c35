"""A private MariaDB from the machine's own `mariadbd`, or the one of HOLDFAST_TEST_MARIADB_URL.

No package brings a MariaDB, so a machine without one leaves it out: `AVAILABLE` says so, and `REASON` why.
"""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from functools import cache
from pathlib import Path
from urllib.parse import quote, urlsplit, urlunsplit

from tests.services.postgres import command_of, is_alive

URL_VARIABLE = "HOLDFAST_TEST_MARIADB_URL"
AVAILABLE = bool(os.environ.get(URL_VARIABLE) or shutil.which("mariadbd"))
REASON = f"no MariaDB: install mariadbd, or set {URL_VARIABLE}"


class Server:
    """A running MariaDB. Only a private one can be stopped and started."""

    def __init__(self, url: str, folder: Path | None = None) -> None:
        self.url = url
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    def fresh_database(self) -> str:
        """The URL of a new, empty database."""
        name = f"holdfast_{uuid.uuid4().hex[:12]}"
        connection = _connect(self.url)
        connection.cursor().execute(f"CREATE DATABASE {name}")
        connection.close()
        return urlunsplit(urlsplit(self.url)._replace(path=f"/{name}"))

    def start(self) -> None:
        folder = self._private()
        with (folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [_program("mariadbd"), *_options(folder), f"--socket={folder / 'socket'}", "--skip-networking"],
                stdout=log,
                stderr=log,
                cwd=folder,
            )
        give_up = time.monotonic() + 60
        while True:
            try:
                _connect(self.url).close()
            except Exception as error:
                if self._process.poll() is not None or time.monotonic() > give_up:
                    raise RuntimeError(f"mariadbd did not start: {_log(folder)}") from error
                time.sleep(0.05)  # it has no other way of saying that it is ready
            else:
                return

    def stop(self, *, crash: bool = False) -> None:
        """Stop it; with `crash`, as if the machine had killed it."""
        assert self._process is not None
        if crash:
            self._process.kill()
        else:
            self._process.terminate()
        self._process.wait()
        self._process = None

    def restart(self, *, crash: bool = False) -> None:
        self.stop(crash=crash)
        self.start()

    def remove(self, process: int) -> None:
        if os.getpid() == process:  # a forked child leaves its parent's server alone
            if self._process is not None:
                self.stop(crash=True)
            shutil.rmtree(self._private(), ignore_errors=True)

    def _private(self) -> Path:
        if self._folder is None:
            raise RuntimeError(f"the server of {URL_VARIABLE} is not ours to stop; unset it to use a private one")
        return self._folder


@cache
def server() -> Server:
    """The one server of this test run."""
    if given := os.environ.get(URL_VARIABLE):
        return Server(given)
    return private_server()


def private_server() -> Server:
    """A server of a test's own, which it may stop."""
    if shutil.which("mariadbd") is None:
        raise RuntimeError(REASON)
    _clean_up()
    folder = _root() / f"{os.getpid()}-{uuid.uuid4().hex[:8]}"
    folder.mkdir()
    if os.getuid() == 0:
        shutil.chown(folder, "nobody", "nogroup")
    made = subprocess.run(
        [
            _program("mariadb-install-db"),
            *_options(folder),
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode != 0:
        raise RuntimeError(f"mariadb-install-db failed: {(made.stdout + made.stderr)[-2000:]}")
    socket = quote(str(folder / "socket"), safe="/")
    started = Server(f"mariadb+pymysql://root@localhost/mysql?unix_socket={socket}", folder)
    started.start()
    atexit.register(started.remove, os.getpid())
    return started


def _root() -> Path:
    root = Path(tempfile.gettempdir()) / f"holdfast-mariadb-{os.getuid()}"
    root.mkdir(exist_ok=True)
    return root


def _clean_up() -> None:
    """Stop and remove what runs that were killed have left."""
    for folder in _root().iterdir():
        owner, note = folder.name.partition("-")[0], folder / "pid"
        if owner.isdecimal() and not is_alive(int(owner)):
            if note.exists() and str(folder) in command_of(int(note.read_text())):
                os.kill(int(note.read_text()), signal.SIGKILL)
            shutil.rmtree(folder, ignore_errors=True)


def _options(folder: Path) -> list[str]:
    own = ["--no-defaults", f"--datadir={folder / 'data'}", f"--pid-file={folder / 'pid'}"]
    return [*own, "--user=nobody"] if os.getuid() == 0 else own


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise RuntimeError(f"{name} is not installed, though mariadbd is")
    return found


def _connect(url: str):  # type: ignore[no-untyped-def]  # PyMySQL has no types
    import pymysql  # here, so that whoever leaves MariaDB out need not have it
    from sqlalchemy import make_url

    parsed = make_url(url)
    return pymysql.connect(**parsed.translate_connect_args(username="user"), **parsed.query, autocommit=True)


def _log(folder: Path) -> str:
    return (folder / "log").read_text(errors="replace")[-2000:]
