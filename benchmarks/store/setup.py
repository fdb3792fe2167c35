"""What a run works on: how many letters, where the stores are, and the letters themselves. Needs no package."""

import json
from dataclasses import asdict, dataclass
from typing import Any, Self
from urllib.parse import urlsplit, urlunsplit

DOMAINS = tuple(f"domain_{number}" for number in range(10))
TYPES = ("MAX_RETRIES_TIMEOUTERROR", "MAX_RETRIES_CONNECTIONERROR", "CIRCUIT_BREAKER_OPEN", "MAX_RETRIES_HTTPERROR")
# Who takes letters away takes them from a domain of its own; these are the letters that stay.
READ, CLAIMED, REPLAYED = DOMAINS[:3]
CAP = 3
SERVICE = "payments"
REDIS_NUMBERS = {"small": 1, "grown": 2, "floor": 3, "peers": 4}


def taken(store: str) -> tuple[str, str]:
    """The domains from which letters are acquired and completed; two stores on one database have different ones."""
    first = 5 if store.endswith("-nowait") else 3
    return DOMAINS[first], DOMAINS[first + 1]


@dataclass(frozen=True)
class Setup:
    """`letters` are in every store; `done` more are in the grown ones (`redis_done` in Redis)."""

    folder: str
    postgres: str
    redis: str
    letters: int
    done: int
    redis_done: int

    @classmethod
    def from_json(cls, text: str) -> Self:
        return cls(**json.loads(text))

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    def path(self, place: str) -> str:
        return f"{self.folder}/{place}.db"

    def url(self, store: str, place: str) -> str:
        """Where a store keeps what belongs to a place: small, grown, floor or peers."""
        if store.startswith("sqlite"):
            return f"sqlite:///{self.path(place)}"
        if store.startswith("postgres"):
            return urlunsplit(urlsplit(self.postgres)._replace(path=f"/bench_{place}"))
        if store == "redis":
            return urlunsplit(urlsplit(self.redis)._replace(path=f"/{REDIS_NUMBERS[place]}"))
        return "memory://"


def letter(number: int, domain: str | None = None) -> dict[str, Any]:
    """The arguments of `create` for a failed call, of about 300 bytes of JSON."""
    return {
        "domain": DOMAINS[number % len(DOMAINS)] if domain is None else domain,
        "failure_type": TYPES[number % len(TYPES)],
        "error_message": "the provider did not answer within 2 seconds",
        "error_code": "ETIMEDOUT",
        "entity_type": "order",
        "entity_id": f"order-{number}",
        "user_id": number % 1000,
        "request_data": {
            "function": "charge",
            "arguments": {"order_id": f"order-{number}", "amount": 1999, "currency": "EUR"},
        },
        "metadata": {"source": "guard", "guard": "payments", "attempts": 3},
    }
