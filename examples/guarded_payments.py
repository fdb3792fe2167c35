"""Guard the calls to a bank: `python examples/guarded_payments.py` (a second, no network).

The first order meets two hiccups and is charged on the third attempt. Then the bank goes down: the second order uses up
its attempts, which opens the breaker, and the third is refused at once.
"""

from __future__ import annotations

import asyncio

from holdfast import Breaker, Bulkhead, CircuitOpen, Guard, Retry, Timeout, count

payments = Guard(
    "payments",
    Retry(attempts=3, base=0.2),
    Breaker(count(5, window=60), open_for=30),
    Timeout(total=10, attempt=2),
    Bulkhead(20, queue=50),
)

hiccups = ["connection reset", "connection reset", "", "bank is down", "bank is down", "bank is down"]


@payments  # `def` or `async def`; signature and types stay
async def charge(order: str, cents: int) -> str:
    trouble = hiccups.pop(0) if hiccups else ""
    print(f"    bank: charge {order}", f"-> {trouble}" if trouble else "-> ok")
    await asyncio.sleep(0.01)
    if trouble:
        raise ConnectionError(trouble)
    return f"receipt for {order}: {cents / 100:.2f} EUR"


async def main() -> None:
    print(payments.describe(), end="\n\n")

    print("order 1:")
    print("   ", await charge("order 1", 1999), end="\n\n")

    print("order 2:")
    try:
        await charge("order 2", 500)
    except ConnectionError as error:  # the function's own exception, as it was raised
        print(f"    {type(error).__name__}: {error}", end="\n\n")

    print("order 3:")
    try:
        await charge("order 3", 700)
    except CircuitOpen as refusal:  # the bank was not called
        print(f"    refused: {refusal.reason}, try again in {refusal.retry_after:.0f} s", end="\n\n")


def sync_too() -> None:
    """The same guard serves synchronous code, and can give an outcome instead of an exception."""
    outcome = payments.run(lambda: "never called while the circuit is open")
    print(f"order 4, synchronous: {outcome.kind}")
    print(payments.explain(outcome))


if __name__ == "__main__":
    asyncio.run(main())
    sync_too()
