"""What happens to an order here. Everything joins the transaction that it is given, and commits nothing."""

from __future__ import annotations

from typing import Final

from sqlalchemy.orm import Session

from examples.orders.models import PLACED, Order
from holdfast import Holdfast

BROKER: Final = "broker"


def place(hold: Holdfast, session: Session, order: Order) -> None:
    """The order, the news of it and the saga that will pay for it: all three, or none."""
    session.add(order)
    session.flush()  # gives it its id
    announce(hold, session, order.id, PLACED)
    hold.sagas.start(session, "order", {"order_id": order.id}, key=order.id, subject_id=order.id)


def close(hold: Holdfast, session: Session, order_id: str, status: str) -> None:
    """Confirm or cancel an order that is still open."""
    order = session.get_one(Order, order_id, with_for_update=True)
    if order.status == PLACED:
        order.status = status
        announce(hold, session, order_id, status)


def announce(hold: Holdfast, session: Session, order_id: str, status: str) -> None:
    """Messages of one order have one key, so they are published in this order. They name it, and hold nothing of it."""
    hold.outbox.publish(session, f"orders.{status}", {"order_id": order_id}, key=f"order-{order_id}", target=BROKER)
