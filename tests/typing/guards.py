"""Decorators keep signatures, and calls infer what the function gives."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, Generic, TypeVar, assert_type

from holdfast import Breaker, Guard, Outcome, Retry, Timeout, count, deadline

T = TypeVar("T")

guard = Guard("payments", Retry(attempts=3, base=0.2), Breaker(count(5, window=60), open_for=30), Timeout(total=10))


def price(item: str, amount: int = 1, *, currency: str = "EUR") -> float:
    return len(item) * amount * len(currency)


async def fetch(url: str, /, timeout: float = 1.0) -> bytes:
    return url.encode() * int(timeout)


# Decorated, a function is what it was.


@guard
def charge(order: int, *, note: str | None = None) -> str:
    return f"{order} {note}"


@guard
async def refund(order: int) -> bool:
    return order > 0


@guard
def collect(*orders: int, **notes: str) -> list[int]:
    return list(orders)


assert_type(charge(1), str)
assert_type(charge(1, note="x"), str)
assert_type(collect(1, 2, a="b"), list[int])
assert_type(guard(price)("x", 2, currency="USD"), float)

charge("1")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
charge(1, "x")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
charge()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
charge(1, nope=2)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
collect("1")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
guard(3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def decorated() -> None:
    assert_type(await refund(1), bool)
    coroutine: Coroutine[Any, Any, bool] = refund(1)
    assert_type(await coroutine, bool)
    await refund("1")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    assert_type(await guard(fetch)("u", timeout=2.0), bytes)


# Decorated for outcomes, it returns them: one overload per colour.


@guard.outcome
def try_charge(order: int, *, note: str = "") -> str:
    return f"{order} {note}"


@guard.outcome
async def try_refund(order: int) -> bool:
    return order > 0


assert_type(try_charge(1), Outcome[str])
assert_type(try_charge(1, note="x").unwrap(), str)
assert_type(try_charge(1).value, Any)
try_charge("1")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def outcomes() -> None:
    assert_type(await try_refund(1), Outcome[bool])
    await try_refund(order="1")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


# Methods bind and keep their types.


class Client(Generic[T]):
    def __init__(self, made: T) -> None:
        self.made = made

    @guard
    def get(self, path: str) -> T:
        return self.made

    @guard
    async def aget(self, path: str) -> list[T]:
        return [self.made]

    @guard.outcome
    def head(self, path: str) -> int:
        return len(path)

    @classmethod
    @guard
    def named(cls, name: str) -> int:
        return len(name)

    @staticmethod
    @guard
    def helper(x: int) -> float:
        return x / 2


client = Client("made")
assert_type(client.get("/"), str)
assert_type(client.head("/"), Outcome[int])
assert_type(Client.helper(1), float)
assert_type(Client[str].named("x"), int)
client.get(3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
client.get()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


async def methods() -> None:
    assert_type(await client.aget("/"), list[str])


# Calls infer T and check the arguments.

assert_type(guard.call(price, "x"), float)
assert_type(guard.call(price, "x", 2, currency="USD"), float)
assert_type(guard.run(price, "x"), Outcome[float])
assert_type(guard.call(lambda: [1]), list[int])
assert_type(guard.call(partial(price, "x")), float)

guard.call(price, 3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
guard.call(price)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
guard.run(price, "x", currency=3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
guard.run(price, "x", nope=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


async def calls() -> None:
    assert_type(await guard.acall(fetch, "u"), bytes)
    assert_type(await guard.acall(fetch, "u", timeout=2.0), bytes)
    assert_type(await guard.arun(fetch, "u"), Outcome[bytes])
    assert_type(await guard.acall(price, "x"), float)
    assert_type(await guard.arun(price, "x"), Outcome[float])
    outcome = await guard.arun(fetch, "u")
    assert_type(outcome.unwrap(), bytes)


async def any_awaitable(make: Callable[[], Awaitable[int]]) -> None:
    assert_type(await guard.acall(make), int)
    assert_type(await guard.arun(make), Outcome[int])


async def wrong_arguments() -> None:
    await guard.acall(fetch, 3)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    await guard.arun(fetch)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]


# Blocks.

with deadline(2.0), guard.override(Retry(attempts=1)):
    assert_type(charge(2), str)


@deadline(2.0)
def bounded(x: int) -> str:
    return str(x)


@deadline(2.0)
async def abounded(x: int) -> str:
    return str(x)


assert_type(bounded(1), str)
bounded("1")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def blocks() -> None:
    async with deadline(1.0) as bound:
        assert_type(bound.remaining(), float)
    assert_type(await abounded(1), str)


# Policies say what they take.

Retry(attempts="3")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
Retry(tries=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
Timeout("10")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
Breaker(open_for="long")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
Retry().attempts = 3  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]
