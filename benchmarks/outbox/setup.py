"""What a run works on: where the databases are, and how many entries. Needs no package."""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Self
from urllib.parse import urlsplit, urlunsplit


@dataclass(frozen=True)
class Setup:
    """`entries` are drained in a sample, `bulk` enqueued in one commit; `sizes` are those of the grown tables.
    `idle_s` is how long an idle worker is watched.
    """

    folder: str
    postgres: str
    mariadb: str
    entries: int
    bulk: int
    sizes: tuple[int, ...]
    idle_s: float

    @classmethod
    def from_json(cls, text: str) -> Self:
        return cls(**json.loads(text))

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    def url(self, store: str, place: str) -> str:
        """The database of a place: mine, peers or dbos. Those of `postgres-nowait` are set not to wait for the disk."""
        if store == "sqlite":
            return f"sqlite:///{self.folder}/{place}.db"
        server = self.mariadb if store == "mariadb" else self.postgres
        return urlunsplit(urlsplit(server)._replace(path=f"/{database(place, store)}"))

    @property
    def latencies(self) -> int:
        """How many latencies a sample has."""
        return max(5, min(50, self.entries // 20))


def database(place: str, store: str) -> str:
    return f"bench_{place}_nowait" if store.endswith("-nowait") else f"bench_{place}"


@dataclass(frozen=True, slots=True)
class Watched:
    """A task that times itself: `figures(samples)` gives microseconds, one for each sample."""

    figures: Callable[[int], Any]


@dataclass(frozen=True, slots=True)
class Counted:
    """A task of which nothing is timed, but something counted."""

    count: Callable[[], dict[str, float]]


def order(number: int) -> dict[str, Any]:
    """What a call is about."""
    return {"order": number, "amount": 1999, "currency": "EUR"}
