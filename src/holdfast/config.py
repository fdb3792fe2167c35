"""Settings of a program: a TOML file, then the environment, then what its code says.

`holdfast.toml` in the working folder is read, or the file that HOLDFAST_CONFIG names. A variable is HOLDFAST_ and the
name, with two underscores into a table: HOLDFAST_URL, HOLDFAST_CAPACITY__TOTAL.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, Final, get_args, get_type_hints

from pydantic import Field, SecretStr, ValidationError, field_validator, model_validator

from holdfast.access.serving import ServerPolicy, in_parts
from holdfast.audit.chain import key_of_text
from holdfast.core.redact import MASK, is_secret_key, redact, redact_value
from holdfast.errors import ConfigurationError, MissingExtra
from holdfast.guard.from_data import policies_of
from holdfast.letters.maintenance import Schedule
from holdfast.letters.overflow import Capacity
from holdfast.letters.recovery import RecoveryPolicy
from holdfast.letters.worker import WorkerPolicy
from holdfast.outbox.publishers.address import bounded
from holdfast.workflows.configs import Configs, configs_of, configured_in_environment

try:
    from pydantic_settings import BaseSettings, InitSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict
except ModuleNotFoundError as error:
    raise MissingExtra("settings need pydantic-settings; run: pip install 'holdfast[cli]'") from error

FILE: Final = "holdfast.toml"
FILE_VARIABLE: Final = "HOLDFAST_CONFIG"
DEFAULT, IN_FILE, IN_ENVIRONMENT = "default", "file", "environment"


class Settings(BaseSettings):
    """What a `Holdfast` is made of. `Settings.load()` reads it; a value that cannot be is a ConfigurationError."""

    model_config = SettingsConfigDict(env_prefix="HOLDFAST_", env_nested_delimiter="__", extra="forbid", frozen=True)

    url: str | None = Field(None, description="The store: sqlite:///holdfast.db, postgresql://…, redis://…")
    app: str | None = Field(None, description="The program's Holdfast, as module:attribute, for the commands")
    source: str | None = Field(None, description="The program's name in the messages that it publishes")
    audit_key: SecretStr | None = Field(
        None, description="The key of the audit trail, in hexadecimal digits or as a text"
    )
    spool: str | None = Field(None, description="The file for failures that the store cannot take")
    quorum: int = Field(1, ge=1, description="Processes that must see an outage before all open their breakers")
    capacity: Capacity | None = Field(None, description="How many dead letters there may be")
    recovery: RecoveryPolicy = Field(default_factory=RecoveryPolicy, description="How dead letters drain")
    schedule: Schedule = Field(default_factory=Schedule, description="How dead letters age")
    worker: WorkerPolicy = Field(default_factory=WorkerPolicy, description="How often a worker looks")
    server: ServerPolicy = Field(default_factory=ServerPolicy, description="Where the server listens, and its limits")
    workflows: dict[str, dict[str, Any]] = Field(
        default_factory=dict, description="How workflows run: resilience, handler, engine"
    )
    webhook_reach: tuple[str, ...] | str = Field(
        (), description="Hosts, addresses and networks that webhooks and http tasks may go to; public for all that are"
    )
    guards: dict[str, dict[str, Any]] = Field(default_factory=dict, description="Policies of guards, by name")

    @model_validator(mode="before")
    @classmethod
    def _known_fields(cls, values: dict[str, Any]) -> dict[str, Any]:
        for name, given in values.items():
            if name in cls.model_fields:
                _check_known(name, _section(cls.model_fields[name].annotation), given)
        return values

    @field_validator("webhook_reach", mode="before")
    @classmethod
    def _in_parts(cls, given: Any) -> Any:
        return tuple(in_parts(given)) if isinstance(given, str | list) else given

    @field_validator("webhook_reach")
    @classmethod
    def _reachable(cls, words: tuple[str, ...]) -> tuple[str, ...]:
        bounded(None, words)
        return words

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        by_old_names = InitSettingsSource(settings_cls, _workflows_in_environment())
        return init_settings, env_settings, by_old_names, InitSettingsSource(settings_cls, in_file())

    @classmethod
    def load(cls, **values: Any) -> Settings:
        """Those of the file and the environment, `values` before them. Raises ConfigurationError or PolicyError."""
        try:
            settings = cls(**values)
        except ValidationError as error:
            raise ConfigurationError("; ".join(_lines(error))) from error
        for guard in settings.guards:
            settings.policies(guard)
        settings.workflow_configs()
        return settings

    @property
    def key(self) -> bytes | None:
        """The key of the audit trail."""
        return None if self.audit_key is None else key_of_text(self.audit_key.get_secret_value())

    def options(self) -> dict[str, Any]:
        """The arguments of `Holdfast` that they stand for."""
        return {
            "url": self.url, "source": self.source, "audit_key": self.key, "spool": self.spool, "quorum": self.quorum,
            "capacity": self.capacity, "recovery": self.recovery, "schedule": self.schedule,
            "workflows": self.workflow_configs(), "webhook_reach": self.webhook_reach,
        }  # fmt: skip

    def workflow_configs(self) -> Configs | None:
        """How workflows run; None where nothing is said of it. Raises ConfigurationError for what cannot be."""
        return configs_of("workflows", self.workflows) if self.workflows else None

    def policies(self, guard: str) -> tuple[list[Any], dict[str, Any]] | None:
        """The policies and options of a guard that the settings name. Raises PolicyError for what they cannot be."""
        table = self.guards.get(guard)
        if table is None:
            return None
        options: dict[str, Any] = {
            name: _flag(guard, name, table[name]) for name in ("dead_letter", "shared") if name in table
        }
        rest = {name: value for name, value in table.items() if name not in options}
        return policies_of(f"guards.{guard}", rest), options

    def origins(self) -> Iterator[Origin]:
        """Every setting, its value without secrets, and where it comes from."""
        file, environment, by_old_names = in_file(), _in_environment(type(self)), _workflows_in_environment()
        for path, value in _leaves(self):
            from_environment, from_file = _has(environment, path) or _has(by_old_names, path), _has(file, path)
            origin = IN_ENVIRONMENT if from_environment else IN_FILE if from_file else DEFAULT
            yield Origin(".".join(path), value, origin)


@dataclass(frozen=True, slots=True)
class Origin:
    """A setting: `origin` is default, file or environment."""

    name: str
    value: Any
    origin: str


def file_path() -> Path | None:
    """The file that is read, if there is one. Raises ConfigurationError for one that was named and is not there."""
    named = os.environ.get(FILE_VARIABLE)
    path = Path(named or FILE)
    if path.is_file():
        return path
    if named:
        raise ConfigurationError(f"there is no file {named!r}, which {FILE_VARIABLE} names")
    return None


def in_file() -> dict[str, Any]:
    path = file_path()
    if path is None:
        return {}
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path} is no TOML: {error}") from error


def _in_environment(cls: type[BaseSettings]) -> dict[str, Any]:
    from pydantic_settings import EnvSettingsSource

    return EnvSettingsSource(cls)()


def _workflows_in_environment() -> dict[str, Any]:
    """What variables of workflows say that are named after none of our tables: HOLDFAST_LEASE_TTL_S and the like."""
    found = configured_in_environment()
    return {"workflows": found} if found else {}


def _section(annotation: Any) -> Any:
    """The dataclass that a setting is made of, if it is made of one."""
    return next((one for one in (annotation, *get_args(annotation)) if is_dataclass(one)), None)


def _check_known(place: str, section: Any, given: Any) -> None:
    """Raises ValueError for what a section has not got: pydantic passes it over."""
    if section is None or not isinstance(given, Mapping):
        return
    known = get_type_hints(section)
    for key, value in given.items():
        if key not in known:
            raise ValueError(f"{place} has no {key!r}; it has {', '.join(known)}")
        _check_known(f"{place}.{key}", _section(known[key]), value)


def _lines(error: ValidationError) -> Iterator[str]:
    for one in error.errors():
        place = ".".join(map(str, one["loc"]))
        if one["type"] == "extra_forbidden":
            yield f"there is no setting {place!r}; there are {', '.join(Settings.model_fields)}"
        else:
            told = one["msg"].removeprefix("Value error, ")
            shown = "" if not place or isinstance(one["input"], Mapping) else f", got {redact(repr(one['input']))}"
            yield f"{place}: {told}{shown}" if place else told


def _flag(guard: str, name: str, value: Any) -> bool:
    if value in (True, "true", "1"):
        return True
    if value in (False, "false", "0"):
        return False
    raise ConfigurationError(f"guards.{guard}.{name} must be true or false, got {value!r}")


def _leaves(settings: Settings) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name in type(settings).model_fields:
        value = getattr(settings, name)
        if name in ("guards", "workflows"):
            for one, table in value.items():
                for key, given in table.items():
                    yield (name, one, key), MASK if is_secret_key(key) else _shown(key, given)
        else:
            yield from _parts_of((name,), value)


def _parts_of(place: tuple[str, ...], value: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
    if is_dataclass(value):
        for field in fields(value):
            yield from _parts_of((*place, field.name), getattr(value, field.name))
    else:
        yield place, redact_value(value)


def _shown(key: str, given: Any) -> Any:
    return redact_value({key: given})[key]


def _has(values: Any, path: tuple[str, ...]) -> bool:
    for name in path:
        if not isinstance(values, Mapping) or name not in values:
            return False
        values = values[name]
    return True
