"""The configurations that an engine runs under, together: what is given in code, and the environment for the rest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Final

from holdfast.core.backoff import Jitter
from holdfast.errors import ConfigurationError
from holdfast.machine.retry import Retry
from holdfast.workflows.config import EngineConfig, HandlerConfig
from holdfast.workflows.fingerprint import combined_fingerprint, config_values
from holdfast.workflows.resilience import ResilienceConfig

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
    def of(cls, given: Any = None, environ: Mapping[str, str] | None = None) -> Configs:
        """From one configuration, or several; what is not given is as the environment says.

        Raises ConfigurationError for what is no configuration, and for two of one kind.
        """
        if isinstance(given, Configs):
            return given
        found = cls.from_env(environ)
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
