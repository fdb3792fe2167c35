"""How many reads are worked on at once, and what becomes of more."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast.server.crowd import CrowdShield

LETTERS = "/api/v1/letters"


class Slow:
    """An application that answers once it is told to."""

    def __init__(self) -> None:
        self.begun = asyncio.Queue[str]()
        self.go_on = asyncio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.begun.put_nowait(scope["path"])
        await self.go_on.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})


class Asking:
    """Somebody who asks, in a task of its own."""

    def __init__(self, app: Any, path: str = LETTERS, method: str = "GET") -> None:
        self.said: list[Any] = []
        scope = {"type": "http", "method": method, "path": path, "headers": []}
        self.task = asyncio.create_task(app(scope, self._receive, self._send))

    async def _receive(self) -> Any:
        return {"type": "http.request", "body": b""}

    async def _send(self, message: Any) -> None:
        self.said.append(message)

    async def answered(self) -> tuple[int, dict[bytes, bytes]]:
        await self.task
        return self.said[0]["status"], dict(self.said[0]["headers"])


async def has_begun(slow: Slow, number: int = 1) -> None:
    for _ in range(number):
        await slow.begun.get()


async def test_more_reads_than_can_wait_are_told_to_come_back() -> None:
    slow = Slow()
    app = CrowdShield(slow, at_once=1, waiting=1, patience_s=60)
    first = Asking(app)
    await has_begun(slow)
    second, third = Asking(app), Asking(app)
    status, headers = await third.answered()
    assert (status, headers[b"retry-after"]) == (503, b"1")
    assert slow.begun.empty()
    slow.go_on.set()
    assert [(await one.answered())[0] for one in (first, second)] == [200, 200]


async def test_a_read_that_has_waited_too_long_is_told_to_come_back() -> None:
    slow = Slow()
    app = CrowdShield(slow, at_once=1, waiting=1, patience_s=0)
    first = Asking(app)
    await has_begun(slow)
    assert (await Asking(app).answered())[0] == 503
    slow.go_on.set()
    assert (await first.answered())[0] == 200


async def test_whoever_goes_away_while_waiting_leaves_the_place_to_another() -> None:
    slow = Slow()
    app = CrowdShield(slow, at_once=1, waiting=1, patience_s=60)
    first = Asking(app)
    await has_begun(slow)
    second = Asking(app)
    await asyncio.sleep(0)  # it is in line
    second.task.cancel()
    await asyncio.gather(second.task, return_exceptions=True)
    third = Asking(app)
    slow.go_on.set()
    assert [(await one.answered())[0] for one in (first, third)] == [200, 200]


async def test_a_read_that_fails_gives_its_place_back() -> None:
    async def fails(scope: Any, receive: Any, send: Any) -> None:
        raise RuntimeError("no")

    app = CrowdShield(fails, at_once=1, waiting=0, patience_s=60)
    for _ in range(2):
        with pytest.raises(RuntimeError):
            await Asking(app).task


@pytest.mark.parametrize(
    ("path", "method"),
    [
        ("/api/v1/health", "GET"), ("/api/v1/ready", "GET"), ("/api/v1/events", "GET"), (LETTERS, "POST"),
        ("/", "GET"), ("/assets/main.js", "GET"),
    ],
)  # fmt: skip
async def test_probes_streams_changes_and_files_do_not_stand_in_line(path: str, method: str) -> None:
    slow = Slow()
    app = CrowdShield(slow, at_once=1, waiting=0, patience_s=60)
    first, other = Asking(app), Asking(app, path, method)
    await has_begun(slow, 2)
    slow.go_on.set()
    assert [(await one.answered())[0] for one in (first, other)] == [200, 200]
