"""`python -m benchmarks.server.traffic < ORDER`: many readers at once, each asking again when its time has come.

Requests are due at a rate, whether or not those before them were answered, and a latency begins when its request was
due: an answer that comes late makes those behind it late too. What it did is one line of JSON.
"""

import asyncio
import json
import resource
import sys
from collections import deque
from dataclasses import asdict, dataclass
from random import Random
from time import perf_counter
from typing import Any, Self

GRACE_S = 10.0
"""How long answers are waited for after the last request."""
TICK_S = 0.001


@dataclass(frozen=True)
class Order:
    """Ask for `paths`, `rate` times in a second for `seconds`, over at most so many connections. Each is asked for with
    each of the tokens, in an order that is the same in every run.
    """

    host: str
    port: int
    paths: tuple[str, ...]
    rate: int
    seconds: float
    connections: int
    tokens: tuple[str, ...]

    @classmethod
    def from_json(cls, text: str) -> Self:
        return cls(**json.loads(text))

    def to_json(self) -> str:
        return json.dumps(asdict(self))


class Reader(asyncio.Protocol):
    """A connection that asks for one thing at a time."""

    def __init__(self, crowd: "Crowd") -> None:
        self._crowd = crowd
        self._due = 0.0
        self._got = bytearray()
        self._whole = 0
        self._status = 0
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def ask(self, request: bytes, due: float) -> None:
        self._due, self._whole = due, 0
        self.transport.write(request)

    def data_received(self, data: bytes) -> None:
        self._got += data
        if not self._whole and (end := self._got.find(b"\r\n\r\n")) >= 0:
            head = bytes(self._got[:end]).lower()
            length = head.partition(b"content-length: ")[2].partition(b"\r\n")[0]
            self._status, self._whole = int(head[9:12]), end + 4 + int(length)
        if self._whole and len(self._got) >= self._whole:
            del self._got[: self._whole]
            self._crowd.answered(self, self._status, self._due)

    def connection_lost(self, error: Exception | None) -> None:
        self._crowd.lost(self)


class Crowd:
    """All readers, and what became of their requests."""

    def __init__(self, order: Order) -> None:
        self._order = order
        head = f"Host: {order.host}\r\nAccept: application/json"
        self._requests = [
            f"GET {path} HTTP/1.1\r\n{head}\r\nAuthorization: Bearer {token}\r\n\r\n".encode()
            for path in order.paths
            for token in order.tokens
        ]
        Random(8400).shuffle(self._requests)
        self._idle: list[Reader] = []
        self._open = 0
        self._late: deque[tuple[bytes, float]] = deque()
        self._under_way = 0
        self.latencies: dict[int, list[float]] = {}
        self.broken = 0

    async def run(self) -> dict[str, Any]:
        order, loop = self._order, asyncio.get_running_loop()
        number, began = int(order.rate * order.seconds), perf_counter()
        sent = 0
        while sent < number:
            due = min(number, int((perf_counter() - began) * order.rate))
            for at in range(sent, due):
                self._late.append((self._requests[at % len(self._requests)], began + at / order.rate))
            sent = due
            await self._send(loop)
            await asyncio.sleep(TICK_S)
        took = perf_counter() - began
        give_up = perf_counter() + GRACE_S
        while (self._late or self._under_way) and perf_counter() < give_up:
            await self._send(loop)
            await asyncio.sleep(TICK_S)
        used = resource.getrusage(resource.RUSAGE_SELF)
        return {
            "sent": number,
            "took_s": took,
            "latencies": {str(status): sorted(found) for status, found in self.latencies.items()},
            "unanswered": len(self._late) + self._under_way,
            "broken": self.broken,
            "connections": self._open,
            "cpu_s": used.ru_utime + used.ru_stime,
        }

    async def _send(self, loop: asyncio.AbstractEventLoop) -> None:
        while self._late and (self._idle or self._open < self._order.connections):
            if not self._idle:
                self._open += 1
                _, made = await loop.create_connection(lambda: Reader(self), self._order.host, self._order.port)
                self._idle.append(made)
            request, due = self._late.popleft()
            self._under_way += 1
            self._idle.pop().ask(request, due)

    def answered(self, reader: Reader, status: int, due: float) -> None:
        self.latencies.setdefault(status, []).append((perf_counter() - due) * 1e3)
        self._under_way -= 1
        self._idle.append(reader)

    def lost(self, reader: Reader) -> None:
        """A connection that the server has closed; what it was asked for is not answered."""
        self._open -= 1
        if reader in self._idle:
            self._idle.remove(reader)
        else:
            self.broken += 1
            self._under_way -= 1


if __name__ == "__main__":
    print(json.dumps(asyncio.run(Crowd(Order.from_json(sys.stdin.read())).run())), flush=True)
