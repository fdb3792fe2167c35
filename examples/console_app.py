"""A shop with FastAPI that has Holdfast's console and API inside: `python -m examples.console_app`, and then
http://127.0.0.1:8000/holdfast/ (with the header X-Back-Office: ann). Needs holdfast[sql,server].

The shop knows its own people, so nobody signs in twice: who may enter its back office is an operator of the console,
and everybody else is kept out.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, HTTPException
from starlette.requests import HTTPConnection

from holdfast import Breaker, Holdfast, HoldfastError, Retry, consecutive, letter_id_of
from holdfast.access.rights import ROLES, Identity, Role
from holdfast.server.api import create_app

BACK_OFFICE = "X-Back-Office"
"""Where the shop's proxy says who somebody is. It must be one that callers cannot set themselves."""


class Bank:
    """What the shop calls."""

    def __init__(self) -> None:
        self.is_down = False
        self.charged: list[str] = []

    def charge(self, order_id: str) -> str:
        if self.is_down:
            raise ConnectionError("the bank does not answer")
        self.charged.append(order_id)
        return f"receipt of {order_id}"


def who(request: HTTPConnection) -> Identity | None:
    """The shop's own answer to who asks the console; None: Holdfast is to find out."""
    name = request.headers.get(BACK_OFFICE)
    return None if name is None else Identity(name, ROLES[Role.OPERATOR], "hook")


def make_app(hold: Holdfast, bank: Bank) -> FastAPI:
    """The shop, with the console below /holdfast."""
    console = create_app(hold, required=True, identify=who)
    worker = hold.worker()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        # An app that is mounted is not started by the one around it; without this its pages are not live.
        async with console.router.lifespan_context(console):
            worker.start()
            yield
            worker.stop(timeout=30)
        hold.close()

    @hold.guard("payments", Retry(attempts=2, base=0.05), Breaker(consecutive(5)), dead_letter=True).replayable
    def charge(order_id: str) -> str:
        return bank.charge(order_id)

    shop = FastAPI(lifespan=lifespan)
    shop.mount("/holdfast", console)

    @shop.post("/orders/{order_id}")
    def order(order_id: str) -> dict[str, str]:
        try:
            return {"order": order_id, "receipt": charge(order_id)}
        except (ConnectionError, HoldfastError) as error:
            if letter_id_of(error) is None:
                raise HTTPException(503, "try again later") from error
            return {"order": order_id, "receipt": "will follow"}

    return shop


if __name__ == "__main__":
    import uvicorn

    uvicorn.run(make_app(Holdfast("sqlite:///shop.db"), Bank()), host="127.0.0.1", port=8000)
