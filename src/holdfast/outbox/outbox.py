"""The transactional outbox: entries are written with the caller's own rows, claimed afterwards, and settled once."""

from __future__ import annotations

from holdfast.outbox.claims import Claims
from holdfast.outbox.draft import DEFAULT_QUEUE
from holdfast.outbox.operators import Operators
from holdfast.outbox.queues import Queues
from holdfast.outbox.retention import Retention
from holdfast.outbox.searching import Searching
from holdfast.outbox.sending import Sending
from holdfast.outbox.settles import Settles

__all__ = ["DEFAULT_QUEUE", "Outbox"]


class Outbox(Sending, Claims, Settles, Searching, Operators, Queues, Retention):
    """The outbox in the application's own database.

    `session_factory` is a `sessionmaker` or an `async_sessionmaker` (then see `AsyncOutbox`), `outbox` the handle that
    `bind_tables` gave. What puts entries in works in the caller's transaction, everything else in transactions of its
    own; `run` and `arun` do the same with any unit of work. `clock` replaces the time of the database server.
    `abandoned_head` says whether an abandoned entry holds up the younger ones of its key (`block`) or not (`skip`).
    `max_payload` is the size in bytes, as JSON, that a payload may have.
    """
