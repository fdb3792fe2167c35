"""The customers: orders at a steady pace, whatever becomes of the earlier ones; the same seed gives the same orders."""

from __future__ import annotations

import threading
from random import Random
from typing import Final, NamedTuple

from holdfast.demo.shop import Shop

PER_SECOND: Final = 10.0
QUIETLY: Final = 1.5
_TILLS: Final = 4
_ARTICLES: Final = ("anchor", "bell", "chart", "compass", "lantern", "rope", "sail", "sextant")
_EXPRESS: Final = 0.06
_PARCELS: Final = 0.05


class Order(NamedTuple):
    """What a customer wants."""

    id: str
    article: str
    cents: int
    is_express: bool
    is_parcel: bool


def order_of(seed: int, number: int) -> Order:
    """The order of that number."""
    luck = Random(f"{seed}/{number}")
    cents = luck.randrange(500, 20_000)
    return Order(f"o-{number}", luck.choice(_ARTICLES), cents, luck.random() < _EXPRESS, luck.random() < _PARCELS)


class Customers:
    """Place orders from `start` to `stop`. `placed` are those that were charged or kept, `lost` those that were not."""

    def __init__(self, shop: Shop, seed: int, per_second: float = PER_SECOND) -> None:
        self._shop = shop
        self._seed = seed
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._next = 1
        self.per_second = per_second
        self.placed: set[str] = set()
        self.lost: set[str] = set()

    def start(self) -> None:
        """Open the tills."""
        self._stop.clear()
        for till in range(_TILLS):
            self._threads.append(threading.Thread(target=self._queue, name=f"till-{till + 1}", daemon=True))
            self._threads[-1].start()

    def stop(self) -> None:
        """Let nobody in, and wait for those who are at the tills."""
        self._stop.set()
        while self._threads:
            self._threads.pop().join()

    def _queue(self) -> None:
        while not self._stop.wait(_TILLS / self.per_second):
            with self._lock:
                number, self._next = self._next, self._next + 1
            self._serve(order_of(self._seed, number))

    def _serve(self, order: Order) -> None:
        shop = self._shop
        shop.look_up(order.article)
        is_placed = shop.pay(order.id, order.cents)
        with self._lock:
            (self.placed if is_placed else self.lost).add(order.id)
        if order.is_express:
            shop.send_express(f"x-{order.id}")
        if order.is_parcel:
            shop.fulfil(f"p-{order.id}")
