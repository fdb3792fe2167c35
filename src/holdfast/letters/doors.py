"""The repository's names for each kind of store. Each is `FailedOperationRepository` and adds nothing to it."""

from __future__ import annotations

from typing import Any

from holdfast.backends.memory import MemoryStore
from holdfast.backends.open import open_store
from holdfast.core.clock import SYSTEM_CLOCK, Clock
from holdfast.letters.repository import FailedOperationRepository
from holdfast.machine.dead_letter import LETTER, SUMMARY
from holdfast.store.port import Store


class InMemoryFailedOperationRepository(FailedOperationRepository):
    """Dead letters in this process's memory, which end with it."""

    def __init__(self, clock: Clock | None = None) -> None:
        super().__init__(MemoryStore(SYSTEM_CLOCK if clock is None else clock), clock)


class SQLFailedOperationRepository(FailedOperationRepository):
    """Dead letters in SQLite, PostgreSQL or MariaDB: `SQLFailedOperationRepository("sqlite:///letters.db")`.

    Takes a store too, to share it. `options` are those of the store. Raises ValueError for a URL of another kind.
    """

    def __init__(self, url_or_store: str | Store, *, clock: Clock | None = None, **options: Any) -> None:
        super().__init__(_opened(url_or_store, ("sqlite", "postgres", "mysql", "mariadb"), clock, options), clock)


class RedisDLQRepository(FailedOperationRepository):
    """Dead letters in Redis or Valkey: `RedisDLQRepository("redis://localhost/0")`.

    Takes a store too, to share it. `options` are those of the store. Raises ValueError for a URL of another kind.
    """

    def __init__(self, url_or_store: str | Store, *, clock: Clock | None = None, **options: Any) -> None:
        super().__init__(_opened(url_or_store, ("redis", "unix"), clock, options), clock)


def _opened(url_or_store: str | Store, schemes: tuple[str, ...], clock: Clock | None, options: dict[str, Any]) -> Store:
    url = url_or_store if isinstance(url_or_store, str) else url_or_store.url
    if not url.startswith(schemes):
        scheme = url.partition(":")[0]
        raise ValueError(f"a {scheme}: store does not go in here; use a URL that begins with {', '.join(schemes)}")
    if isinstance(url_or_store, str):
        return open_store(url_or_store, clock=clock, kinds=(LETTER, SUMMARY), **options)
    return url_or_store
