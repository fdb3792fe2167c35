"""What a run works on: where the stores are, how much is in them, and how to name a row by its number."""

import json
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, Self
from urllib.parse import urlsplit, urlunsplit

TITLES = {"sqlite": "SQLite", "postgres": "PostgreSQL"}
STEP = 2_000_000
"""Microseconds from one row to the next: a million of them are three weeks."""
RARE = 5
"""So many rows of each table, the oldest, are like no others: from the newest on they are found last."""
BULK_DOMAIN = "bulk"


@dataclass(frozen=True)
class Setup:
    """`rows` are in each table, the newest of the time `until`; `bulk` letters more are there to be replayed."""

    folder: str
    postgres: str
    rows: int
    bulk: int
    until: int

    @classmethod
    def from_json(cls, text: str) -> Self:
        return cls(**json.loads(text))

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    def path(self, place: str) -> str:
        return f"{self.folder}/{place}.db"

    def url(self, store: str, place: str = "served") -> str:
        """Where a store keeps what belongs to a place: served, or bulk."""
        if store == "sqlite":
            return f"sqlite:///{self.path(place)}"
        return urlunsplit(urlsplit(self.postgres)._replace(path=f"/bench_{place}"))

    def at(self, number: int) -> int:
        """When the row of this number was made, the first one being 1."""
        return self.until - (self.rows - number) * STEP

    def moment(self, number: int) -> str:
        return datetime.fromtimestamp(self.at(number) / 1e6, UTC).isoformat().replace("+00:00", "Z")

    def record(self, number: int) -> str:
        """The id of a letter or a workflow."""
        return f"{self.at(number):014x}{number:010x}"

    def uuid(self, number: int) -> str:
        """The id of an entry, a saga or an event."""
        return f"018f0000-0000-7000-8000-{number:012x}"

    def cursor(self, number: int) -> str:
        """What a page of letters or workflows goes on after."""
        return f"{self.at(number):x}.{self.record(number)}"

    def timed_cursor(self, number: int) -> str:
        """The same for sagas and events."""
        return f"{self.moment(number)},{self.uuid(number)}"


def order(number: Any) -> dict[str, Any]:
    """What a call is about."""
    return {"order_id": f"order-{number}", "amount": 1999, "currency": "EUR"}
