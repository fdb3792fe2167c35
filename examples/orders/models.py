"""The shop's own tables. Those of Holdfast stand beside them in the same database, so that one transaction has both."""

from __future__ import annotations

from typing import ClassVar
from uuid import uuid4

from sqlalchemy import CheckConstraint, ForeignKey, String
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

PLACED, CONFIRMED, CANCELLED = "placed", "confirmed", "cancelled"


def new_id() -> str:
    """Ids say nothing about anybody: they stand in audit trails, logs and topics for ever."""
    return uuid4().hex


class Base(DeclarativeBase):
    type_annotation_map: ClassVar = {str: String(255)}


class Customer(Base):
    __tablename__ = "customers"

    id: Mapped[str] = mapped_column(primary_key=True, default=new_id)
    email: Mapped[str]


class Order(Base):
    """Placed, and then either confirmed or cancelled. `reference` is the client's own: a second click is no second
    order.
    """

    __tablename__ = "orders"
    __table_args__ = (CheckConstraint("quantity > 0"),)

    id: Mapped[str] = mapped_column(primary_key=True, default=new_id)
    reference: Mapped[str] = mapped_column(unique=True)
    customer_id: Mapped[str | None] = mapped_column(ForeignKey("customers.id"))
    address: Mapped[str]
    item: Mapped[str]
    quantity: Mapped[int]
    cents: Mapped[int]
    status: Mapped[str] = mapped_column(default=PLACED)


class Shipment(Base):
    """Of the consumer, which would have a database of its own. Nothing here keeps an order from being shipped twice:
    that is what the inbox is for.
    """

    __tablename__ = "shipments"

    id: Mapped[int] = mapped_column(primary_key=True)
    order_id: Mapped[str]
