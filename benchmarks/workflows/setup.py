"""What a run works on: where the databases are, and how much is done. Needs no package."""

import json
from dataclasses import asdict, dataclass
from typing import Self
from urllib.parse import urlsplit, urlunsplit

KEPT = ("fewest", "more", "most")
PLACES = ("mine", "floor", "dbos", "stabilize", *KEPT)


@dataclass(frozen=True)
class Setup:
    """`chain` is how many steps the long workflow has, `crowd` how many short ones there are at once, `fans` and
    `kept` the sizes of what grows; `idle_s` is how long an idle worker is watched.
    """

    folder: str
    postgres: str
    chain: int
    crowd: int
    fans: tuple[int, ...]
    kept: tuple[int, ...]
    idle_s: float

    @classmethod
    def from_json(cls, text: str) -> Self:
        given = json.loads(text)
        return cls(**given | {name: tuple(given[name]) for name in ("fans", "kept")})

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    def url(self, store: str, place: str) -> str:
        """The database of a place."""
        if store == "sqlite":
            return f"sqlite:///{self.folder}/{place}.db"
        return urlunsplit(urlsplit(self.postgres)._replace(path=f"/bench_{place}"))


def label(size: int) -> str:
    return f"{size:,}"
