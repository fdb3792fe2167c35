"""A customer who wants to be forgotten: the shop's own rows at once, everybody else's through the outbox."""

from __future__ import annotations

from sqlalchemy.orm import Session

from examples.orders.models import Base, Customer, Order
from examples.orders.outside import Newsletter
from holdfast import Erasure, ErasureStrategy, Holdfast, LocalStep, SubjectRef, SubjectRequest


def register_erasure(hold: Holdfast, newsletter: Newsletter) -> Erasure:
    """Orders stay, for the books, without the person; the customer goes."""
    hold.resolvers.register(newsletter)
    tables = Base.metadata.tables
    orders = LocalStep(
        tables[Order.__tablename__],
        "customer_id",
        ErasureStrategy.ANONYMIZE,
        anonymize={"customer_id": None, "address": "erased"},
    )
    return hold.erasure(orders, LocalStep(tables[Customer.__tablename__], "id"))


def forget(erasure: Erasure, session: Session, customer_id: str) -> SubjectRequest:
    """A reference goes to the resolver whose name is its kind."""
    return erasure.erase_subject(session, customer_id, refs=[SubjectRef(kind=Newsletter.name, value=customer_id)])
