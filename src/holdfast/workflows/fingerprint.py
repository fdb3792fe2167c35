"""Which configuration a workflow ran under: fingerprints, what is stored of it, and what has changed since.

No secret gets into any of them. A URL counts as driver, host, port and database.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import Field, fields, is_dataclass
from datetime import timedelta
from enum import Enum
from fractions import Fraction
from typing import Any, ClassVar, Final, NamedTuple, Protocol

from holdfast.core.redact import MASK, is_secret_key
from holdfast.errors import ConfigurationError

_FINGERPRINT: Final = re.compile(r"[0-9a-f]{16}")
_AUTHORITY: Final = re.compile(r"(?:\[[0-9a-fA-F:.%]+\]|[\w.\-]*)(?::[0-9]+)?(?:,(?:[\w.\-]+)(?::[0-9]+)?)*")
_QUERY: Final = re.compile(r"(?:[\w.\-]+=[^&]*(?:&|$))*")


class Config(Protocol):
    """Any frozen dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]


class Started(Protocol):
    """What a workflow remembers of the configuration that it was started with."""

    @property
    def config_version(self) -> str | None: ...

    @property
    def config_values(self) -> Mapping[str, Any] | None: ...


class Drift(NamedTuple):
    """A value then, and now. None: there was none."""

    old: Any
    new: Any


def fingerprint(config: Config) -> str:
    """16 hexadecimal digits over the name of the class and all its fields: equal values, equal digits, anywhere."""
    return _digest(type(config).__name__, _fields(config))


def combined_fingerprint(*configs: Config) -> str:
    """One fingerprint for several configurations, in any order."""
    return _digest("combined", sorted([type(config).__name__, fingerprint(config)] for config in configs))


def config_values(*configs: Config) -> dict[str, Any]:
    """The fields of the configurations by name, as JSON without secrets: what is stored with a workflow.

    Raises ConfigurationError where two have a field of the same name.
    """
    values: dict[str, Any] = {}
    for config in configs:
        own = _fields(config)
        for name in own.keys() & values.keys():
            raise ConfigurationError(f"two configurations have a field {name!r}; give each configuration once")
        values.update(own)
    return values


def config_drift(stored: Mapping[str, Any] | Started | Config, *current: Config) -> dict[str, Drift]:
    """The fields whose values have changed, by name, with old and new value; empty if nothing has.

    `stored` is what `config_values` gave, a configuration, or a workflow. Only the fields of `current` are compared.
    Of a workflow without stored values only the fingerprint is known, and a `config_version` that is none is the
    user's own affair.
    """
    values: Mapping[str, Any] | None
    if isinstance(stored, Mapping):
        values = stored
    elif is_dataclass(stored) and not isinstance(stored, type) and not hasattr(stored, "config_version"):
        values = config_values(stored)
    else:
        values = getattr(stored, "config_values", None)
        if values is None:
            return _version_drift(getattr(stored, "config_version", None), current)
    old, new = _flat(values), _flat(config_values(*current))
    known = {name.partition(".")[0] for name in new}
    names = sorted({name for name in old if name.partition(".")[0] in known} | set(new))
    return {name: Drift(old.get(name), new.get(name)) for name in names if old.get(name) != new.get(name)}


def place(url: str) -> str:
    """A URL as driver, host, port and database: no user, no password, no query.

    Where these cannot be told from a password with odd characters in it, only the driver is left.
    """
    driver, _, rest = url.partition("://")
    head, _, query = rest.partition("?")
    if "@" not in head and "@" in query and _AUTHORITY.fullmatch(head.partition("/")[0]) is None:
        head, query = rest, ""  # the question mark is in the password
    reach = head if head.startswith("/") else head.rpartition("@")[2]  # a path alone has no user
    where, slash, database = reach.partition("/")
    odd = "@" in query and _QUERY.fullmatch(query) is None
    if odd or _AUTHORITY.fullmatch(where) is None:
        return f"{driver.lower()}://{MASK}"
    return f"{driver.lower()}://{where.lower()}{slash}{database}"


def _digest(name: str, value: object) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(f"{name}\n{text}".encode()).hexdigest()[:16]


def _fields(config: Config) -> dict[str, Any]:
    owner = type(config).__name__
    return {
        item.name: MASK if is_secret_key(item.name) else _plain(f"{owner}.{item.name}", getattr(config, item.name))
        for item in fields(config)
    }


def _plain(label: str, value: Any) -> Any:
    """The value in JSON types, the same in every process."""
    if isinstance(value, Enum):
        value = value.value
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str):
        return place(value) if "://" in value else value
    if isinstance(value, Fraction):
        return str(value)
    if isinstance(value, timedelta):
        return value.total_seconds()
    if is_dataclass(value) and not isinstance(value, type):
        return _fields(value)
    if isinstance(value, Mapping):
        return {
            str(key): MASK if is_secret_key(str(key)) else _plain(label, item) for key, item in sorted(value.items())
        }
    if isinstance(value, tuple) and value and all(_is_pair(item) for item in value):
        return {name: _fields(item) for name, item in value}
    if isinstance(value, list | tuple):
        return [_plain(label, item) for item in value]
    if isinstance(value, set | frozenset):
        return sorted((_plain(label, item) for item in value), key=repr)
    if callable(value):
        # Never the repr, which holds an address.
        named = value if hasattr(value, "__qualname__") else type(value)
        return f"{named.__module__}:{named.__qualname__}"
    raise ConfigurationError(f"{label} holds {type(value).__name__}, which has no fingerprint; use a plain value")


def _is_pair(value: object) -> bool:
    return isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], str) and is_dataclass(value[1])


def _flat(values: Mapping[str, Any], start: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            flat.update(_flat(value, f"{start}{name}."))
        else:
            flat[start + name] = value
    return flat


def _version_drift(version: str | None, current: tuple[Config, ...]) -> dict[str, Drift]:
    if version is None or _FINGERPRINT.fullmatch(version) is None:
        return {}
    now = combined_fingerprint(*current)
    return {} if version in (now, *map(fingerprint, current)) else {"config_version": Drift(version, now)}
