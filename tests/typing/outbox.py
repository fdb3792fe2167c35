"""What an enqueue takes: whatever has the caller's transaction."""

from __future__ import annotations

import sqlite3
from typing import Any, assert_type
from uuid import UUID

import psycopg
import sqlalchemy as sa
from sqlalchemy.orm import Session

from holdfast import Holdfast

hold = Holdfast("sqlite:///shop.db")


def enqueue(
    session: Session, connection: sa.Connection, file: sqlite3.Connection, server: psycopg.Connection[Any]
) -> None:
    for transaction in (session, connection, file, server):
        assert_type(hold.outbox.put(transaction, "charge", target="bank"), UUID)
        assert_type(hold.outbox.publish(transaction, "orders", {}), UUID)
    hold.outbox.put("shop.db", "charge", target="bank")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
