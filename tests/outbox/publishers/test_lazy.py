"""A broker's client, made at first use."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.outbox.publishers.lazy import Lazy


class Broker:
    """Hands out clients when told to."""

    def __init__(self) -> None:
        self.made = 0
        self.ended: list[int] = []
        self.dead: set[int] = set()
        self.open = asyncio.Event()
        self.refuses = False
        self.lazy: Lazy[int] = Lazy(self._make, self._end, lambda client: client not in self.dead)

    async def _make(self) -> int:
        await self.open.wait()
        self.made += 1
        if self.refuses:
            raise ConnectionRefusedError("no broker")
        return self.made

    async def _end(self, client: int) -> None:
        self.ended.append(client)


async def test_all_who_wait_get_the_same_client():
    broker = Broker()
    waiting = [asyncio.create_task(broker.lazy.get()) for _ in range(10)]
    await asyncio.sleep(0)
    broker.open.set()
    assert await asyncio.gather(*waiting) == [1] * 10
    assert await broker.lazy.get() == 1


async def test_a_failure_is_told_to_all_who_wait_and_the_next_call_tries_again():
    broker = Broker()
    broker.refuses = True
    waiting = [asyncio.create_task(broker.lazy.get()) for _ in range(3)]
    await asyncio.sleep(0)
    broker.open.set()
    answers = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(answer) for answer in answers] == [ConnectionRefusedError] * 3
    broker.refuses = False
    assert await broker.lazy.get() == 2


async def test_a_cancelled_call_leaves_the_client_to_the_others():
    broker = Broker()
    first, second = (asyncio.create_task(broker.lazy.get()) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    broker.open.set()
    assert await second == 1
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_a_dead_client_is_ended_and_replaced():
    broker = Broker()
    broker.open.set()
    assert await broker.lazy.get() == 1
    broker.dead.add(1)
    assert await asyncio.gather(broker.lazy.get(), broker.lazy.get()) == [2, 2]
    assert broker.ended == [1]


async def test_closing_ends_the_client_once_and_the_next_use_makes_another():
    broker = Broker()
    await broker.lazy.close()
    broker.open.set()
    await broker.lazy.get()
    await broker.lazy.close()
    await broker.lazy.close()
    assert broker.ended == [1]
    assert await broker.lazy.get() == 2


async def test_closing_while_connecting_ends_the_attempt():
    broker = Broker()
    waiting = asyncio.create_task(broker.lazy.get())
    await asyncio.sleep(0)
    await broker.lazy.close()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert broker.made == 0


def test_each_loop_has_a_client_of_its_own():
    made: list[asyncio.AbstractEventLoop] = []

    async def make() -> int:
        made.append(asyncio.get_running_loop())
        return len(made)

    async def end(client: int) -> None:
        pass

    lazy: Lazy[int] = Lazy(make, end)

    async def outer() -> tuple[int, int, int]:
        first = await lazy.get()
        second = await asyncio.to_thread(asyncio.run, lazy.get())
        return first, second, await lazy.get()

    assert asyncio.run(outer()) == (1, 2, 1)
    assert asyncio.run(lazy.get()) == 3
