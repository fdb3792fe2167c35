"""A server in a process of its own, and somebody who asks it one thing after the other."""

import http.client
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from benchmarks.run import HERE

CSRF = "X-Holdfast-CSRF"


@dataclass(frozen=True)
class Served:
    """`holdfast serve`, as anybody starts it."""

    host: str
    port: int
    pid: int

    def cpu_s(self) -> float:
        """Seconds of processor time that it has used."""
        with open(f"/proc/{self.pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def serving(url: str) -> Iterator[Served]:
    command = [sys.executable, "-m", "holdfast", "serve", "--url", url, "--port", "0"]
    process = subprocess.Popen(
        command, cwd=HERE.parent, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )  # fmt: skip
    try:
        assert process.stdout
        told = process.stdout.readline()
        found = re.search(r"http://([\d.]+):(\d+)", told)
        if found is None:
            raise RuntimeError(f"the server did not begin: {told!r}")
        yield Served(found[1], int(found[2]), process.pid)
    finally:
        process.terminate()
        process.wait()


class Client:
    """One connection that is kept. `cookie` is that of a session."""

    def __init__(self, served: Served, cookie: str | None = None) -> None:
        self._connection = http.client.HTTPConnection(served.host, served.port, timeout=60)
        self._headers = {} if cookie is None else {"Cookie": f"holdfast={cookie}"}

    def ask(self, address: str) -> tuple[float, int, bytes]:
        """Milliseconds until the whole answer was there, its status, and the answer."""
        began = perf_counter()
        self._connection.request("GET", address, headers=self._headers)
        answer = self._connection.getresponse()
        body = answer.read()
        return (perf_counter() - began) * 1e3, answer.status, body

    def post(self, address: str, body: dict[str, Any]) -> dict[str, Any]:
        csrf = json.loads(self.ask("/api/v1/session")[2])["csrf"]
        headers = {"Content-Type": "application/json", CSRF: csrf}
        self._connection.request("POST", address, json.dumps(body), headers)
        answer = self._connection.getresponse()
        found: dict[str, Any] = json.loads(answer.read())
        if answer.status >= 300:
            raise RuntimeError(f"{address}: {found}")
        return found
