"""How SQLite stores are opened where code does not say: HOLDFAST_SQLITE_* in the environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from holdfast.core.environment import Configured, Environment, flag, made, number, whole


@dataclass(frozen=True, slots=True)
class SqliteOptions(Configured):
    """Those of `SqlStore`, for files of SQLite."""

    durable: bool = flag(True, "SQLITE_DURABLE", "use True to wait for the disk")
    connections: int = whole(8, "SQLITE_CONNECTIONS", 1, 1000, "use 8")
    patience: float = number(30.0, "SQLITE_PATIENCE_S", 0, 3600, "use 30", above=True)


def sqlite_options(given: Mapping[str, Any], environ: Mapping[str, str] | None = None) -> dict[str, Any]:
    """What is given, and for the rest what the environment says. Raises ConfigurationError that names the variable."""
    found: SqliteOptions = made(SqliteOptions, Environment(environ).read(SqliteOptions))
    return {**asdict(found), **given}
