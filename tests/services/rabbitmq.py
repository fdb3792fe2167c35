"""A private RabbitMQ from the machine's own `rabbitmq-server`, or the one of HOLDFAST_TEST_RABBITMQ_URL.

No package brings a RabbitMQ, so a machine without one leaves it out: `AVAILABLE` says so, and `REASON` why. Its port
mapper (epmd) is a private one as well, since Erlang would leave a shared one running for ever.
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
from contextlib import closing
from functools import cache
from pathlib import Path
from socket import create_connection
from urllib.parse import urlsplit

from tests.services.nats import free_port, works_in
from tests.services.postgres import is_alive

URL_VARIABLE = "HOLDFAST_TEST_RABBITMQ_URL"
REASON = f"no RabbitMQ: install Debian's rabbitmq-server, or set {URL_VARIABLE}"
_PATIENCE_S = 90.0


def _program() -> str | None:
    # Debian's command of that name insists on the user rabbitmq and its folders; the program behind it does not.
    plain = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
    return str(plain) if plain.exists() else shutil.which("rabbitmq-server")


AVAILABLE = bool(os.environ.get(URL_VARIABLE) or _program())


class Server:
    """A running RabbitMQ. Only a private one can be stopped and started."""

    def __init__(self, url: str, folder: Path | None = None) -> None:
        self.url = url
        self._folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []
        self._mapper_port = free_port()

    def start(self) -> None:
        folder, program = self._private(), _program()
        mapper = shutil.which("epmd")
        if program is None or mapper is None:
            raise RuntimeError(REASON)
        environment = self._environment(folder)
        with (folder / "log").open("ab") as log:
            for words in ([mapper, "-relaxed_command_check"], [program]):
                # A group of its own: the program is a script, and a crash is to hit the server that it started.
                started = subprocess.Popen(
                    words, env=environment, cwd=folder, stdout=log, stderr=log, start_new_session=True
                )
                self._processes.append(started)
                with (folder / "pids").open("a") as note:
                    note.write(f"{started.pid}\n")
        self._wait(folder)

    def stop(self, *, crash: bool = False) -> None:
        """Stop it; with `crash`, as if it had been killed."""
        self._private()
        for process in reversed(self._processes):
            if crash:
                os.killpg(process.pid, signal.SIGKILL)
            else:
                process.terminate()
            process.wait(_PATIENCE_S)
        self._processes = []

    def restart(self, *, crash: bool = False) -> None:
        self.stop(crash=crash)
        self.start()

    def remove(self, process: int) -> None:
        if os.getpid() == process:  # a forked child leaves its parent's server alone
            self.stop(crash=True)
            shutil.rmtree(self._private(), ignore_errors=True)

    def _environment(self, folder: Path) -> dict[str, str]:
        nothing = folder / "none"
        nothing.touch()
        plugins = folder / "plugins"
        plugins.write_text("[].\n")
        own = {
            "HOME": str(folder),
            "ERL_EPMD_PORT": str(self._mapper_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": f"holdfast{urlsplit(self.url).port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(urlsplit(self.url).port),
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_MNESIA_BASE": str(folder / "data"),
            "RABBITMQ_LOG_BASE": str(folder / "logs"),
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_PID_FILE": str(folder / "pid"),
            "RABBITMQ_CONF_ENV_FILE": str(nothing),
            "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(plugins),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+S 1:1 +sbwt none",
        }
        return {**os.environ, **own}

    def _wait(self, folder: Path) -> None:
        give_up = time.monotonic() + _PATIENCE_S
        while not self._answers():
            ended = any(process.poll() is not None for process in self._processes)
            if ended or time.monotonic() > give_up:
                raise RuntimeError(f"rabbitmq-server did not start: {(folder / 'log').read_text()[-2000:]}")
            time.sleep(0.1)  # it has no other way of saying that it is ready

    def _answers(self) -> bool:
        parts = urlsplit(self.url)
        try:
            with closing(create_connection((parts.hostname or "", parts.port or 0), timeout=2)) as link:
                link.sendall(b"AMQP\x00\x00\x09\x01")
                return link.recv(1) == b"\x01"
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


def private_server() -> Server:
    """A server of a test's own, which it may stop."""
    if _program() is None:
        raise RuntimeError(REASON)
    _clean_up()
    folder = _root() / f"{os.getpid()}-{uuid.uuid4().hex[:8]}"
    folder.mkdir()
    started = Server(f"amqp://guest:guest@127.0.0.1:{free_port()}/", folder)
    atexit.register(started.remove, os.getpid())
    started.start()
    return started


def _root() -> Path:
    root = Path(tempfile.gettempdir()) / f"holdfast-rabbitmq-{os.getuid()}"
    root.mkdir(exist_ok=True)
    return root


def _clean_up() -> None:
    """Stop and remove what runs that were killed have left."""
    for folder in _root().iterdir():
        owner, note = folder.name.partition("-")[0], folder / "pids"
        if owner.isdecimal() and not is_alive(int(owner)):
            for process in map(int, note.read_text().split() if note.exists() else ()):
                if works_in(process, folder):
                    os.killpg(process, signal.SIGKILL)
            shutil.rmtree(folder, ignore_errors=True)
