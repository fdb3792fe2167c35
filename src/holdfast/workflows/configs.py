"""The configurations that an engine runs under, together: what is given in code, and the environment for the rest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from typing import Any, Final

from holdfast.core.backoff import Jitter
from holdfast.core.environment import Configured, Environment, settings
from holdfast.errors import ConfigurationError, PolicyError
from holdfast.machine.retry import Retry
from holdfast.workflows.config import EngineConfig, HandlerConfig
from holdfast.workflows.fingerprint import combined_fingerprint, config_values
from holdfast.workflows.resilience import BULKHEADS, BulkheadConfig, ResilienceConfig, written_window

EXECUTIONS: Final = 10
"""How often a task without a policy of its own is called at most."""


@dataclass(frozen=True)
class Configs:
    """What an engine is told. `Configs.of(HandlerConfig(max_workers=4))` takes the others from the environment."""

    resilience: ResilienceConfig
    handler: HandlerConfig
    engine: EngineConfig

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None) -> Configs:
        """Raises ConfigurationError that names the variable."""
        return cls(ResilienceConfig.from_env(environ), HandlerConfig.from_env(environ), EngineConfig.from_env(environ))

    @classmethod
    def of(
        cls, given: Any = None, environ: Mapping[str, str] | None = None, *, others: Configs | None = None
    ) -> Configs:
        """From one configuration, or several; what is not given is as `others` are, or the environment says.

        Raises ConfigurationError for what is no configuration, and for two of one kind.
        """
        if isinstance(given, Configs):
            return given
        found = cls.from_env(environ) if others is None else others
        parts = {type(getattr(found, one.name)): one.name for one in fields(cls)}
        several = list(given) if isinstance(given, Iterable) and not isinstance(given, str) else [given]
        taken: dict[str, Any] = {}
        for config in () if given is None else several:
            name = parts.get(type(config))
            if name is None or name in taken:
                story = "is given twice" if name is not None else "is no configuration of workflows"
                names = ", ".join(kind.__name__ for kind in parts)
                raise ConfigurationError(f"{config!r} {story}; give each of {names} at most once")
            taken[name] = config
        return replace(found, **taken)

    @property
    def all(self) -> tuple[ResilienceConfig, HandlerConfig, EngineConfig]:
        return self.resilience, self.handler, self.engine

    @cached_property
    def fingerprint(self) -> str:
        """16 hexadecimal digits over everything: what a workflow remembers of them."""
        return combined_fingerprint(*self.all)

    @cached_property
    def values(self) -> dict[str, Any]:
        """Every field by name, without secrets."""
        return config_values(*self.all)

    @cached_property
    def usual(self) -> Retry:
        """How a task is tried again that has no policy of its own."""
        backoff = self.handler.task_backoff
        base, cap = backoff.min_delay_ms / 1000, max(0.001, backoff.max_delay_ms / 1000)
        return Retry(attempts=EXECUTIONS, base=base, cap=cap, multiplier=backoff.factor, jitter=Jitter.PROPORTIONAL)


PARTS: Final = {"resilience": ResilienceConfig, "handler": HandlerConfig, "engine": EngineConfig}
"""The tables of a file that say how workflows run."""
_BULKHEADS: Final = "bulkheads"
_THRESHOLD: Final = "circuit_failure_threshold"


def configs_of(place: str, tables: Mapping[str, Any]) -> Configs:
    """From tables of fields, by part: numbers and texts, as a file and the environment have them.

    Raises ConfigurationError that names the place.
    """
    for part, table in tables.items():
        if part not in PARTS or not isinstance(table, Mapping):
            raise ConfigurationError(f"{place} has no table {part!r}; it has {', '.join(PARTS)}")
    return Configs(**{part: _config_of(f"{place}.{part}", kind, tables.get(part, {})) for part, kind in PARTS.items()})


def configured_in_environment(environ: Mapping[str, str] | None = None) -> dict[str, dict[str, Any]]:
    """What the variables of workflows say (HOLDFAST_LEASE_TTL_S), as tables of texts. Raises ConfigurationError."""
    env = Environment(environ)
    found: dict[str, dict[str, Any]] = {
        part: {name: env.text_of(variable) for name, (variable, _) in env.read(kind).items()}
        for part, kind in PARTS.items()
    }
    if any(True for _ in env.names("BULKHEAD_")):
        limits = ResilienceConfig.from_env(environ).bulkheads_dict()
        found["resilience"][_BULKHEADS] = {name: asdict(limit) for name, limit in limits.items()}
    return {part: table for part, table in found.items() if table}


def _config_of(place: str, kind: type[Configured], table: Mapping[str, Any]) -> Any:
    given = {name: value for name, value in table.items() if name != _BULKHEADS}
    values = _values(place, kind, given)
    ratio = given.get(_THRESHOLD)
    if isinstance(ratio, str) and "circuit_window" not in given:
        values["circuit_window"] = written_window(ratio, values[_THRESHOLD])
    if _BULKHEADS in table and kind is ResilienceConfig:
        values[_BULKHEADS] = _bulkheads(f"{place}.{_BULKHEADS}", table[_BULKHEADS])
    try:
        return kind(**values)
    except PolicyError as error:
        raise ConfigurationError(f"{place}: {error}") from error


def _values(place: str, kind: type[Configured], table: Mapping[str, Any]) -> dict[str, Any]:
    known = dict(settings(kind))
    for name in table:
        if name not in known:
            raise ConfigurationError(f"{place} has no {name!r}; it has {', '.join(known)}")
    try:
        return {
            name: known[name].parsed(f"{place}.{name}", value)
            if isinstance(value, str)
            else known[name].checked(f"{place}.{name}", value)
            for name, value in table.items()
        }
    except PolicyError as error:
        raise ConfigurationError(str(error)) from error


def _bulkheads(place: str, tables: Any) -> dict[str, BulkheadConfig]:
    """Those that come with Holdfast, changed and joined by these."""
    if not isinstance(tables, Mapping) or not all(isinstance(one, Mapping) for one in tables.values()):
        raise ConfigurationError(f"{place} must be a table for each type of task, got {tables!r}")
    limits = dict(BULKHEADS)
    for type_, table in tables.items():
        values = _values(f"{place}.{type_}", BulkheadConfig, table)
        limits[type_] = replace(limits.get(type_, BulkheadConfig()), **values)
    return limits
