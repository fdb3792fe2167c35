"""The shop's HTTP interface. A handler opens one transaction, and answers when it has committed: never a call to
anybody else in between.
"""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI, HTTPException
from pydantic import BaseModel, Field
from sqlalchemy.exc import IntegrityError

from examples.orders.forgetting import forget
from examples.orders.models import Customer, Order, new_id
from examples.orders.ordering import place
from holdfast import Erasure, Holdfast


class NewCustomer(BaseModel):
    email: str


class NewOrder(BaseModel):
    reference: str
    customer_id: str
    address: str
    item: str
    quantity: int = Field(default=1, ge=1)
    cents: int = Field(ge=0)


def make_api(hold: Holdfast, erasure: Erasure) -> FastAPI:
    api = FastAPI(title="Orders")

    @api.post("/customers", status_code=201)
    def register(new: NewCustomer) -> dict[str, str]:
        customer = Customer(id=new_id(), email=new.email)
        with hold.sessions.begin() as session:
            session.add(customer)
            return {"id": customer.id}

    @api.post("/orders", status_code=202)
    def order(new: NewOrder) -> dict[str, str]:
        """Accepted: whether it can be paid for and shipped is found out afterwards."""
        try:
            with hold.sessions.begin() as session:
                if session.get(Customer, new.customer_id) is None:
                    raise HTTPException(404, "there is no such customer")
                order = Order(**new.model_dump())
                place(hold, session, order)
                return {"id": order.id, "status": order.status}
        except IntegrityError:
            raise HTTPException(409, f"there is an order {new.reference!r} already") from None

    @api.get("/orders/{order_id}")
    def look(order_id: str) -> dict[str, str]:
        with hold.sessions() as session:
            order = session.get(Order, order_id)
            if order is None:
                raise HTTPException(404, "there is no such order")
            return {"id": order.id, "status": order.status, "address": order.address}

    @api.delete("/customers/{customer_id}", status_code=202)
    def erase(customer_id: str) -> dict[str, Any]:
        with hold.sessions.begin() as session:
            request = forget(erasure, session, customer_id)
            return {"rows": request.rows, "external": len(request.entries)}

    @api.get("/customers/{customer_id}/trail")
    def trail(customer_id: str) -> list[str]:
        """What was done about a customer, for whoever has to prove it."""
        return [str(event.event_type) for event in hold.audit.read(customer_id)]

    return api
