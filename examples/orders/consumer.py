"""Shipping, another program: it learns of confirmed orders from the broker, and ships each once."""

from __future__ import annotations

from sqlalchemy.orm import Session

from examples.orders.models import CONFIRMED, Shipment
from holdfast import CloudEvent, Holdfast


class Shipping:
    """`handled` counts what was new, `repeated` what was not."""

    def __init__(self, hold: Holdfast) -> None:
        self._sessions = hold.sessions
        self._inbox = hold.inbox("shipping")
        self.handled = self.repeated = 0

    def handle(self, event: CloudEvent) -> None:
        """The message's id is written with what the message does, in one transaction: so both are there, or neither."""
        with self._sessions.begin() as session:
            is_new = self._inbox.handle(session, event.id, lambda session: self._act_on(session, event))
        self.handled += is_new
        self.repeated += not is_new

    def _act_on(self, session: Session, event: CloudEvent) -> None:
        if event.type == f"orders.{CONFIRMED}":
            session.add(Shipment(order_id=event.data["order_id"]))
