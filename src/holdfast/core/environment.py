"""What a configuration's field may hold, and which environment variable gives it.

A field says both in one line: `max_workers: int = whole(10, "PROCESSOR_MAX_WORKERS", 1, 10_000, "...")`. So what is
checked when a configuration is made is also what is checked when the environment is read.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import Field, dataclass, field, fields
from typing import Any, ClassVar, Final

from holdfast.errors import ConfigurationError, PolicyError

PREFIXES: Final = ("HOLDFAST_", "STABILIZE_")
"""The first that is set wins."""
MOST: Final = 1_000_000

_SETTING: Final = "holdfast.setting"
_WHOLE: Final = re.compile(r"[+-]?[0-9]+")
_NUMBER: Final = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_FLAGS: Final = {
    "true": True,
    "1": True,
    "yes": True,
    "on": True,
    "false": False,
    "0": False,
    "no": False,
    "off": False,
}


@dataclass(frozen=True, slots=True)
class Setting:
    """One field: what is wanted of it in words, `take` for a value, `read` for a text. Both raise ValueError."""

    variable: str
    wanted: str
    fix: str
    take: Callable[[Any], Any]
    read: Callable[[str], Any]
    aliases: tuple[str, ...] = ()
    secret: bool = False

    @property
    def metadata(self) -> dict[str, Setting]:
        """What makes a dataclass field this setting."""
        return {_SETTING: self}

    def checked(self, label: str, value: object) -> Any:
        """The value as it is kept. Raises PolicyError."""
        try:
            return self.take(value)
        except (TypeError, ValueError):
            raise PolicyError(self._refusal(label, value)) from None

    def parsed(self, variable: str, text: str) -> Any:
        """The value of a variable. Raises ConfigurationError."""
        try:
            return self.take(self.read(text.strip()))
        except (TypeError, ValueError):
            raise ConfigurationError(self._refusal(variable, text)) from None

    def _refusal(self, label: str, value: object) -> str:
        got = "another value, which is not shown" if self.secret else repr(value)
        return f"{label} must be {self.wanted}, got {got}; {self.fix}"


class Configured:
    """A frozen dataclass whose fields are settings: each is checked when it is made, then all of them together."""

    __slots__ = ()
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    def __post_init__(self) -> None:
        for name, setting in settings(type(self)):
            value = setting.checked(f"{type(self).__name__}.{name}", getattr(self, name))
            object.__setattr__(self, name, value)
        self._check_together()

    def _check_together(self) -> None:
        """Refuse values that do not fit each other. Raises PolicyError."""


def whole(default: int, variable: str, least: int, most: int, fix: str) -> int:
    """A field for a whole number."""
    setting: int = field(default=default, metadata=whole_setting(variable, least, most, fix).metadata)
    return setting


def whole_or_none(default: int | None, variable: str, least: int, most: int, fix: str) -> int | None:
    """A field for a whole number or None; a variable says `none`."""
    inner = whole_setting(variable, least, most, fix)

    def take(value: object) -> int | None:
        return None if value is None else inner.take(value)

    def read(text: str) -> int | None:
        return None if text.lower() == "none" else inner.read(text)

    setting: int | None = field(
        default=default, metadata=Setting(variable, f"{inner.wanted}, or None", fix, take, read).metadata
    )
    return setting


def number(default: float, variable: str, least: float, most: float, fix: str, *, above: bool = False) -> float:
    """A field for a number from `least` to `most`; with `above`, `least` itself is too little."""
    # Kept as a float, and never as -0.0: equal configurations must have equal fingerprints.

    def take(value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
            raise ValueError
        if above and value == least:
            raise ValueError
        return float(value) + 0.0

    def read(text: str) -> float:
        return float(_matching(_NUMBER, text))

    wanted = f"a number {'above' if above else 'from'} {least:g} {'and at most' if above else 'to'} {most:g}"
    setting: float = field(default=default, metadata=Setting(variable, wanted, fix, take, read).metadata)
    return setting


def flag(default: bool, variable: str, fix: str) -> bool:
    """A field for True or False; a variable says true or false, yes or no, on or off, 1 or 0."""

    def take(value: object) -> bool:
        if not isinstance(value, bool):
            raise ValueError  # noqa: TRY004  # one message says both
        return value

    def read(text: str) -> bool | None:
        return _FLAGS.get(text.lower())

    setting: bool = field(default=default, metadata=Setting(variable, "True or False", fix, take, read).metadata)
    return setting


def choice(default: str, variable: str, names: tuple[str, ...], fix: str) -> Any:
    """A field for one of some names."""

    def take(value: object) -> str:
        if not isinstance(value, str) or value not in names:
            raise ValueError
        return str(value)

    return field(
        default=default, metadata=Setting(variable, f"one of {', '.join(names)}", fix, take, str.lower).metadata
    )


def whole_setting(variable: str, least: int, most: int, fix: str) -> Setting:
    """The setting of a whole number."""

    def take(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise ValueError
        return int(value)

    def read(text: str) -> int:
        return int(_matching(_WHOLE, text))

    return Setting(variable, f"a whole number from {least} to {most}", fix, take, read)


def settings(kind: type[Configured]) -> Iterator[tuple[str, Setting]]:
    """The fields of a configuration that are settings."""
    return ((item.name, item.metadata[_SETTING]) for item in fields(kind) if _SETTING in item.metadata)


def variables(kind: type[Configured]) -> dict[str, str]:
    """From the name after the prefix of each variable that a configuration reads to the field that it gives."""
    return {setting.variable: name for name, setting in settings(kind) if setting.variable}


class Environment:
    """The environment, asked for the fields of configurations. `os.environ` unless another mapping is given."""

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        self._environ = os.environ if environ is None else environ

    def find(self, variable: str, aliases: Iterable[str] = ()) -> tuple[str, str] | None:
        """The full name and the text of a variable; None if it is not set. Aliases have no prefix of their own."""
        names = [prefix + variable for prefix in PREFIXES] if variable else []
        return next(((name, self._environ[name]) for name in (*names, *aliases) if name in self._environ), None)

    def text_of(self, name: str) -> str:
        """What a variable that is set says, by its full name."""
        return self._environ[name]

    def read(self, kind: type[Configured], within: str = "") -> dict[str, tuple[str, Any]]:
        """From field to (variable, value), for the variables that are set. Raises ConfigurationError."""
        found: dict[str, tuple[str, Any]] = {}
        for name, setting in settings(kind):
            given = self.find(within + setting.variable if setting.variable else "", setting.aliases)
            if given is not None:
                found[name] = given[0], setting.parsed(*given)
        return found

    def names(self, start: str) -> Iterator[tuple[str, str]]:
        """Every variable whose name after the prefix begins so: its full name, and what follows the start."""
        for name in sorted(self._environ):
            for prefix in PREFIXES:
                if name.startswith(prefix + start):
                    yield name, name.removeprefix(prefix + start)


def made(kind: Callable[..., Any], found: Mapping[str, tuple[str, Any]], **others: Any) -> Any:
    """A configuration of what the environment gave.

    Raises ConfigurationError that names the variables, where values do not fit each other.
    """
    try:
        return kind(**{name: value for name, (_, value) in found.items()}, **others)
    except PolicyError as error:
        guilty = [variable for name, (variable, _) in found.items() if name in str(error)]
        source = ", ".join(guilty or (variable for variable, _ in found.values()))
        raise ConfigurationError(f"{error} (from {source})") from error


def _matching(pattern: re.Pattern[str], text: str) -> str:
    if pattern.fullmatch(text) is None:
        raise ValueError
    return text
