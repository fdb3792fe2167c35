"""Bulkheads per task type, when circuits open, and where the database is."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from fractions import Fraction
from math import ceil
from typing import Any, Final, Literal, Self

from holdfast.core.check import LONGEST_S
from holdfast.core.environment import (
    MOST,
    Configured,
    Environment,
    Setting,
    made,
    number,
    settings,
    whole,
    whole_or_none,
)
from holdfast.errors import ConfigurationError, PolicyError
from holdfast.workflows.fingerprint import fingerprint

LARGEST_WINDOW: Final = 10_000
DEFAULT_TYPE: Final = "default"
"""The bulkhead of this name gives the limits of every type that is not listed."""

_SMALLEST_WINDOW: Final = 10
_RATIO: Final = re.compile(r"([0-9]+)\s*/\s*([0-9]+)|[0-9]*\.?[0-9]+")
_NOT_A_NAME: Final = re.compile(r"[^a-z0-9]+")

CircuitScope = Literal["workflow", "task_type"] | Callable[[str, str], str | None]


@dataclass(frozen=True, slots=True)
class BulkheadConfig(Configured):
    """The slots of one task type. Variables: BULKHEAD_<TYPE>_MAX_CONCURRENT and so on, for any type."""

    max_concurrent: int = whole(5, "MAX_CONCURRENT", 1, 10_000, "use 1 to run one at a time")
    max_queue_size: int = whole(20, "MAX_QUEUE_SIZE", 0, MOST, "use 0 to refuse instead of waiting")
    timeout_seconds: float = number(14400, "TIMEOUT_SECONDS", 0, LONGEST_S, "use 14400 for four hours", above=True)

    def config_fingerprint(self) -> str:
        """16 hexadecimal digits over every field."""
        return fingerprint(self)


Bulkheads = tuple[tuple[str, BulkheadConfig], ...]

BULKHEADS: Final[Bulkheads] = (
    ("shell", BulkheadConfig(5)),
    ("python", BulkheadConfig(3)),
    ("http", BulkheadConfig(10)),
    ("docker", BulkheadConfig(3)),
    ("ssh", BulkheadConfig(5)),
)


def _take_bulkheads(value: Any) -> Bulkheads:
    """Pairs, or a mapping."""
    pairs = tuple((name, limits) for name, limits in (value.items() if isinstance(value, Mapping) else value))
    for name, limits in pairs:
        if not isinstance(name, str) or not name or not isinstance(limits, BulkheadConfig):
            raise ValueError
    if len(dict(pairs)) < len(pairs):
        raise ValueError
    return pairs


def _take_threshold(value: Any) -> Fraction:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal | Fraction):
        raise ValueError  # noqa: TRY004  # both say the same, and become one message
    # By its decimal digits: 0.3 means 3/10, not the nearest power of two.
    ratio = value if isinstance(value, Fraction) else Fraction(str(value))
    if not 0 < ratio <= 1:
        raise ValueError
    return ratio


def _read_threshold(text: str) -> Fraction:
    if _RATIO.fullmatch(text) is None:
        raise ValueError
    try:
        return Fraction("".join(text.split()))
    except ZeroDivisionError:
        raise ValueError from None


def _take_scope(value: Any) -> Any:
    if value not in ("workflow", "task_type") and not callable(value):
        raise ValueError
    return value


def _take_url(value: Any) -> str | None:
    if value is not None and (not isinstance(value, str) or not re.match(r"[A-Za-z][\w+.\-]*://", value)):
        raise ValueError
    return value


_BULKHEADS: Final = Setting(
    "",
    "pairs of a task type and a BulkheadConfig, each type once",
    'use (("http", BulkheadConfig(10)),)',
    _take_bulkheads,
    str,
)
_THRESHOLD: Final = Setting(
    "CIRCUIT_FAILURE_THRESHOLD",
    "a share above 0 and at most 1",
    "use 0.5 or 5/10 to open at half",
    _take_threshold,
    _read_threshold,
)
_SCOPE: Final = Setting(
    "CIRCUIT_SCOPE",
    "workflow, task_type, or in code a function of workflow id and task type",
    "use workflow to keep workflows apart",
    _take_scope,
    str.lower,
)
_DATABASE_URL: Final = Setting(
    "DATABASE_URL",
    "a URL such as postgresql://host/database",
    "leave it out for none",
    _take_url,
    str,
    aliases=("HOLDFAST_MG_DATABASE_URL", "STABILIZE_MG_DATABASE_URL", "MG_DATABASE_URL"),
    secret=True,
)


@dataclass(frozen=True, slots=True)
class ResilienceConfig(Configured):
    """Bulkheads per task type, when circuits open, and where the database is.

    The circuit of a task type opens when `circuit_failure_threshold` of its last calls have failed. How many calls
    that are is `circuit_window`; without one, 10, or the denominator if that is more. `circuit_scope` says who shares
    a circuit: the tasks of one type in one workflow, all tasks of a type ("task_type"), or those for which a function
    of workflow id and task type gives the same name (None: as "workflow").
    """

    bulkheads: Bulkheads = field(default=BULKHEADS, metadata=_BULKHEADS.metadata)
    circuit_failure_threshold: Fraction = field(default=Fraction(5, 10), metadata=_THRESHOLD.metadata)
    circuit_cooldown_seconds: float = number(
        30, "CIRCUIT_COOLDOWN_SECONDS", 0, LONGEST_S, "use 30 to try again after half a minute", above=True
    )
    circuit_cache_size: int = whole(1000, "CIRCUIT_CACHE_SIZE", 1, MOST, "use 1000")
    database_url: str | None = field(default=None, repr=False, metadata=_DATABASE_URL.metadata)
    circuit_window: int | None = whole_or_none(
        None, "CIRCUIT_WINDOW", 1, LARGEST_WINDOW, "leave it out for 10, or as many as the denominator says"
    )
    circuit_scope: CircuitScope = field(default="workflow", metadata=_SCOPE.metadata)

    def _check_together(self) -> None:
        if self.window > LARGEST_WINDOW:
            raise PolicyError(
                f"ResilienceConfig.circuit_failure_threshold must have a denominator of at most {LARGEST_WINDOW} where "
                f"no circuit_window is given, got {self.circuit_failure_threshold}; use Fraction(3, 10)"
            )

    @property
    def window(self) -> int:
        """Of how many last calls the failures are counted."""
        return self.circuit_window or max(_SMALLEST_WINDOW, self.circuit_failure_threshold.denominator)

    @property
    def failures_to_open(self) -> int:
        """How many of them must fail for a circuit to open."""
        return ceil(self.circuit_failure_threshold * self.window)

    def get_bulkhead(self, task_type: str) -> BulkheadConfig:
        """The limits of a task type: its own, those listed under the name a variable can have, or the default ones."""
        listed = self.bulkheads_dict()
        for name in (task_type, variable_name(task_type), DEFAULT_TYPE):
            if name in listed:
                return listed[name]
        return BulkheadConfig()

    def bulkheads_dict(self) -> dict[str, BulkheadConfig]:
        """The listed types and their limits."""
        return dict(self.bulkheads)

    def config_fingerprint(self) -> str:
        """16 hexadecimal digits over every field; of the database only driver, host, port and name."""
        return fingerprint(self)

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None) -> Self:
        """As the environment says, else the defaults. Raises ConfigurationError that names the variable."""
        env = Environment(environ)
        found = env.read(cls)
        if "circuit_failure_threshold" in found and "circuit_window" not in found:
            variable, ratio = found["circuit_failure_threshold"]
            given = env.find("CIRCUIT_FAILURE_THRESHOLD")
            window = None if given is None else written_window(given[1], ratio)
            if window is not None:
                found["circuit_window"] = variable, _setting(cls, "circuit_window").parsed(variable, str(window))
        config: Self = made(cls, found, bulkheads=_bulkheads_of(env))
        return config


def variable_name(task_type: str) -> str:
    """A task type as a variable can name it: `send-mail` is listed as `send_mail`."""
    return _NOT_A_NAME.sub("_", task_type.lower())


def _setting(kind: type[Configured], name: str) -> Setting:
    return dict(settings(kind))[name]


def written_window(text: str, ratio: Fraction) -> int | None:
    """The denominator as somebody wrote it: 5/20 is a quarter of 20 calls. None where it makes no difference."""
    match = _RATIO.fullmatch(text.strip())
    if match is None or match[2] is None:
        return None
    written = max(_SMALLEST_WINDOW, int(match[2]))
    return None if written == max(_SMALLEST_WINDOW, ratio.denominator) else written


def _bulkheads_of(env: Environment) -> Bulkheads:
    """The default bulkheads, changed and joined by those of the environment."""
    limits: dict[str, BulkheadConfig] = dict(BULKHEADS)
    for task_type in sorted(_types_of(env)):
        found = env.read(BulkheadConfig, f"BULKHEAD_{task_type.upper()}_")
        given = {name: value for name, (_, value) in found.items()}
        limits[task_type] = replace(limits.get(task_type, BulkheadConfig()), **given)
    return tuple(limits.items())


def _types_of(env: Environment) -> set[str]:
    """The task types that the environment names. Raises ConfigurationError for a name that would not be read."""
    endings = ["_" + setting.variable for _, setting in settings(BulkheadConfig)]
    types = set()
    for variable, rest in env.names("BULKHEAD_"):
        task_type = next((rest.removesuffix(end) for end in endings if rest.endswith(end)), "")
        if not task_type or task_type != task_type.upper():
            known = ", ".join(f"BULKHEAD_<TYPE>{end}" for end in endings)
            raise ConfigurationError(f"{variable} sets nothing; after the prefix there are {known}")
        types.add(task_type.lower())
    return types
