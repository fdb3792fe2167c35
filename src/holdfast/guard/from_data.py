"""Policies from plain data, such as a table of a TOML file.

    [guards.payments]
    retry = { attempts = 3, base = 0.2 }
    breaker = { opens_on = [{ count = 5, window = 60 }], open_for = 30 }
    timeout = { total = 10, attempt = 2 }

Fields are those of the policies. What only code can say, a function, has no place here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from inspect import Parameter, signature
from typing import Any, Final

from holdfast.errors import PolicyError
from holdfast.guard.bulkhead import Bulkhead
from holdfast.guard.cache import Cache
from holdfast.guard.hedge import Hedge
from holdfast.guard.priority import PriorityBulkhead
from holdfast.guard.rate_limit import RateLimit
from holdfast.guard.timeout import Timeout
from holdfast.machine.adaptive import AdaptiveLimit
from holdfast.machine.breaker import Breaker
from holdfast.machine.retry import Retry
from holdfast.machine.throttle import Throttle
from holdfast.machine.trip import TripRule, consecutive, count, k_of_n, ratio, slow_ratio

POLICIES: Final[Mapping[str, Callable[..., Any]]] = {
    "retry": Retry, "breaker": Breaker, "timeout": Timeout, "bulkhead": Bulkhead, "priority_bulkhead": PriorityBulkhead,
    "rate_limit": RateLimit, "hedge": Hedge, "cache": Cache, "throttle": Throttle, "adaptive_limit": AdaptiveLimit,
}  # fmt: skip
RULES: Final[Mapping[str, Callable[..., TripRule]]] = {
    "consecutive": consecutive, "count": count, "ratio": ratio, "k_of_n": k_of_n, "slow_ratio": slow_ratio,
}  # fmt: skip
_ONLY_CODE: Final = frozenset({"health", "on_retry", "handles", "actions", "key", "by", "schedule"})
_TEXTS: Final = frozenset({"name", "id", "domain", "backoff", "jitter", "safety"})


def policies_of(place: str, table: Mapping[str, Any]) -> list[Any]:
    """The policies of one guard. Raises PolicyError that names the place, what is wrong there, and what it may be."""
    return [_policy(f"{place}.{name}", name, values) for name, values in table.items()]


def _policy(place: str, name: str, values: Any) -> Any:
    make = POLICIES.get(name)
    if make is None:
        raise PolicyError(f"{place}: there is no such policy; there are {', '.join(POLICIES)}")
    if values is True or values == "true":
        values = {}
    if not isinstance(values, Mapping):
        raise PolicyError(f"{place} must be a table of its fields, or true for the defaults, got {values!r}")
    rest = dict(values)
    rules = list(_rules(f"{place}.opens_on", rest.pop("opens_on", ()))) if make is Breaker else []
    fields = [*_fields(make), *(["opens_on"] if make is Breaker else [])]
    return _made(place, partial(make, *rules, **_read(place, rest, fields)))


def _rules(place: str, given: Any) -> Iterator[TripRule]:
    for number, table in enumerate([given] if isinstance(given, Mapping) else given):
        here = f"{place}[{number}]"
        names = [name for name in RULES if isinstance(table, Mapping) and name in table]
        if len(names) != 1:
            raise PolicyError(f"{here} must be a table with one of {', '.join(RULES)}, got {table!r}")
        make, rest = RULES[names[0]], dict(table)
        first = _value(names[0], rest.pop(names[0]))
        yield _made(here, partial(make, first, **_read(here, rest, _fields(make)[1:])))


def _read(place: str, given: Mapping[str, Any], fields: list[str]) -> dict[str, Any]:
    for name in given:
        if name not in fields:
            raise PolicyError(f"{place} has no {name!r}; it has {', '.join(fields)}")
    return {name: _value(name, value) for name, value in given.items()}


def _value(name: str, value: Any) -> Any:
    """Numbers come as texts from the environment."""
    if isinstance(value, str) and name not in _TEXTS:
        try:
            return json.loads(value)
        except ValueError:
            return value
    return value


def _made(place: str, make: Callable[[], Any]) -> Any:
    try:
        return make()
    except (PolicyError, TypeError, ValueError) as error:
        raise PolicyError(f"{place}: {error}") from error


def _fields(make: Callable[..., Any]) -> list[str]:
    named = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
    return [
        name for name, given in signature(make).parameters.items() if given.kind in named and name not in _ONLY_CODE
    ]
