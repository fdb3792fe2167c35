"""The story: `python -m examples.orders` (a few seconds, SQLite, no network).

An order is paid for and shipped once, though the bank's first answer is lost and the broker says everything twice. A
request that fails leaves nothing behind. A declined card and an empty shelf cancel their orders, and what was done is
undone. Then a customer wants to be forgotten, and an auditor looks. With `--nats URL` the broker is a real one.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from collections.abc import Callable
from pathlib import Path

import httpx

from examples.orders.broker import Broker, LocalBroker, NatsBroker
from examples.orders.shop import Outside, Shop
from holdfast import OutboxStatus

PATIENCE_S = 20.0
LOOK_S = 0.05


async def tell(shop: Shop, outside: Outside, web: httpx.AsyncClient) -> None:
    ann = (await web.post("/customers", json={"email": "ann@example.org"})).json()["id"]
    outside.newsletter.readers.add(ann)

    async def order(reference: str, item: str, cents: int) -> str:
        """Order, and wait until nothing is left to do; what has become of it."""
        wanted = {"reference": reference, "customer_id": ann, "address": "Pier 7", "item": item, "cents": cents}
        accepted = await web.post("/orders", json=wanted)
        if accepted.is_error:
            return str(accepted.json()["detail"])
        await until(lambda: is_idle(shop))
        status = (await web.get(f"/orders/{accepted.json()['id']}")).json()["status"]
        return f"{status}; {', '.join(calls_for(shop, accepted.json()['id']))}"

    print("ann orders an anchor; the bank takes the money, but its first answer is lost:")
    outside.bank.lose_answers(1)
    print(f"    {await order('ann-1', 'anchor', 40_00)}")
    print(f"    the bank was asked {outside.bank.calls} times, and charged {sum(outside.bank.charged.values())} cents")
    await until(lambda: shop.shipping.handled + shop.shipping.repeated >= 2 * shop.broker.copies)
    print(
        f"    shipping: {shop.shipping.handled} messages, {shop.shipping.repeated} repeated, {shop.shipped()} shipment"
    )

    print("she clicks twice; the second request is undone, and so is its message:")
    before = entries(shop)
    print(f"    {await order('ann-1', 'anchor', 40_00)}; {entries(shop) - before} new entries in the outbox")

    print("her card is declined:")
    print(f"    {await order('ann-2', 'anchor', 400_00)}")
    print(f"    {outside.warehouse.stock['anchor']} anchor is on the shelf again")

    print("there is no chain:")
    print(f"    {await order('ann-3', 'chain', 10_00)}")

    print("ann wants to be forgotten:")
    print(f"    here: {(await web.delete(f'/customers/{ann}')).json()['rows']}")
    await until(lambda: is_idle(shop) and is_confirmed(shop, ann))
    print(f"    newsletter: {'still knows her' if ann in outside.newsletter.readers else 'does not know her'}")
    for line in (await web.get(f"/customers/{ann}/trail")).json():
        print(f"        {line}")
    verified = shop.hold.audit.verify_all()
    print(f"    audit trail: {sum(one.events for one in verified)} events, {'intact' if all(verified) else 'broken'}")


def calls_for(shop: Shop, order_id: str) -> list[str]:
    """The calls of an order's saga, in order."""
    [saga] = shop.hold.sagas.find(subject_id=order_id)
    history = shop.hold.sagas.history(saga.saga_id)
    return [f"{one.operation} {'done' if one.status == 'succeeded' else one.last_error}" for one in history]


def entries(shop: Shop) -> int:
    return sum(shop.hold.outbox.status_counts().values())


def is_idle(shop: Shop) -> bool:
    counts = shop.hold.outbox.status_counts()
    return entries(shop) == counts[OutboxStatus.SUCCEEDED] + counts[OutboxStatus.ABANDONED]


def is_confirmed(shop: Shop, customer_id: str) -> bool:
    """Whether somebody has looked that everything external is gone."""
    asked = shop.hold.outbox.find(subject_id=customer_id, operation="erase")
    return all(one.verification == "confirmed" for one in asked)


async def until(is_so: Callable[[], bool]) -> None:
    for _ in range(int(PATIENCE_S / LOOK_S)):
        if await asyncio.to_thread(is_so):
            return
        await asyncio.sleep(LOOK_S)
    raise SystemExit("that took too long")


async def main(url: str, broker: Broker) -> None:
    outside = Outside()
    shop = Shop(url, outside, broker)
    web = httpx.AsyncClient(transport=httpx.ASGITransport(shop.api), base_url="http://shop")
    try:
        async with shop.running(), web:
            await tell(shop, outside, web)
    finally:
        shop.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m examples.orders", description=__doc__)
    parser.add_argument(
        "--nats", metavar="URL", help="a NATS server with JetStream, instead of a broker in this process"
    )
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        chosen: Broker = NatsBroker(given.nats) if given.nats else LocalBroker()
        asyncio.run(main(f"sqlite:///{Path(folder) / 'shop.db'}", chosen))
