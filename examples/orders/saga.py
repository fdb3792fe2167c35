"""How an order is paid for: goods are set aside, then the card is charged. If one of them cannot be had, what may have
happened is undone, the last step first.
"""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any, Final

from examples.orders.models import CANCELLED, CONFIRMED, Order
from examples.orders.ordering import close
from examples.orders.outside import Bank, CardDeclined, OutOfStock, Warehouse
from holdfast import BackoffPolicy, CallContext, Holdfast, OutboxEntry, Saga, Step

# Half a minute is the usual beginning; a story has less time.
SOON: Final = BackoffPolicy(base_delay=timedelta(milliseconds=200))


def register_order_saga(hold: Holdfast, warehouse: Warehouse, bank: Bank) -> Saga:
    """Each function below is an operation: it is called at least once, outside of any transaction."""

    def find(order_id: str) -> Order:
        with hold.sessions() as session:
            return session.get_one(Order, order_id)

    def closes(status: str, session: Any, entry: OutboxEntry, result: Any) -> None:
        close(hold, session, entry.payload["order_id"], status)

    @hold.operation("reserve", permanent=(OutOfStock,), backoff=SOON)
    def reserve(order_id: str) -> None:
        order = find(order_id)
        warehouse.reserve(order_id, order.item, order.quantity)

    # The first step is undone last, so nothing is left to undo: the order is cancelled in the transaction that says so.
    @hold.operation("release", complete_in=partial(closes, CANCELLED), backoff=SOON)
    def release(order_id: str) -> None:
        warehouse.release(order_id)

    @hold.operation("charge", permanent=(CardDeclined,), complete_in=partial(closes, CONFIRMED), backoff=SOON)
    def charge(order_id: str, context: CallContext) -> None:
        bank.charge(context.idempotency_key, find(order_id).cents)

    @hold.operation("refund", backoff=SOON)
    def refund(order_id: str, context: CallContext) -> None:
        bank.refund(context.ref.extra["compensates"])  # the key of the charge, which may never have happened

    return hold.saga(
        Saga(
            "order",
            (
                Step("reserve", "reserve", compensation="release"),
                Step("charge", "charge", compensation="refund"),
            ),
        )
    )
