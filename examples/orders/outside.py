"""The world outside: services that a real shop calls over the network. Each is asked at least once for everything, so
each knows what it was asked before.
"""

from __future__ import annotations

from collections import Counter

from holdfast import ResolverErasure, ResolverVerification, SubjectRef


class OutOfStock(Exception):
    pass


class CardDeclined(Exception):
    pass


class Warehouse:
    """Sets goods aside for an order."""

    def __init__(self, **stock: int) -> None:
        self.stock = Counter(stock)
        self.reserved: dict[str, tuple[str, int]] = {}

    def reserve(self, order_id: str, item: str, quantity: int) -> None:
        if order_id in self.reserved:
            return
        if self.stock[item] < quantity:
            raise OutOfStock(item)
        self.stock[item] -= quantity
        self.reserved[order_id] = item, quantity

    def release(self, order_id: str) -> None:
        """For an order that it has never heard of there is nothing to do."""
        item, quantity = self.reserved.pop(order_id, ("nothing", 0))
        self.stock[item] += quantity


class Bank:
    """Charges once for each key. After a refund it takes no charge under that key, however late it comes."""

    def __init__(self, *, declines_above: int) -> None:
        self.charged: dict[str, int] = {}
        self.refunded: set[str] = set()
        self.calls = 0
        self._limit = declines_above
        self._to_lose = 0

    def lose_answers(self, number: int) -> None:
        """Do as asked, and let the caller believe that it failed."""
        self._to_lose = number

    def charge(self, key: str, cents: int) -> None:
        self.calls += 1
        if cents > self._limit or key in self.refunded:
            raise CardDeclined
        self.charged[key] = cents
        if self._to_lose:
            self._to_lose -= 1
            raise ConnectionError("the money is gone, and so is the answer")

    def refund(self, key: str) -> None:
        self.refunded.add(key)
        self.charged.pop(key, None)


class Newsletter:
    """Somebody else's system that knows the shop's customers: a resolver, found by its name."""

    name = "newsletter"

    def __init__(self) -> None:
        self.readers: set[str] = set()

    async def export_subject(self, ref: SubjectRef) -> dict[str, bool]:
        return {"reads": ref.value in self.readers}

    async def erase_subject(self, ref: SubjectRef) -> ResolverErasure:
        known = ref.value in self.readers
        self.readers.discard(ref.value)
        return ResolverErasure(resolver=self.name, already_absent=not known)

    async def verify_absent(self, ref: SubjectRef) -> ResolverVerification:
        """Asked after the erasure is on disk; makes `Newsletter` a resolver that can be verified."""
        return ResolverVerification(resolver=self.name, confirmed_absent=ref.value not in self.readers)
