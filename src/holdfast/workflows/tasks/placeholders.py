"""Values of a stage's context in texts: `{order.id}`.

In a shell command a value is never part of the text that the shell reads. It becomes a variable, and the placeholder
becomes that variable, quoted; so no value, whatever it holds, is run. As the shell does, `'…'` is left as it is, and
so are `${HOME}` and `{a,b}`. `{{name}}` is the text `{name}`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import Any, Final, NamedTuple

from holdfast.errors import ConfigurationError

VARIABLE: Final = "HOLDFAST_VALUE_"
# What matters in a shell command outside of quotes, and between double ones; `$(…)` begins anew in either.
_NAME: Final = r"\{\{[^{}]*\}\}|(?<!\$)\{(?P<name>[A-Za-z_]\w*(?:\.\w+)*)\}"
_BARE: Final = re.compile(
    rf"\\.|(?:(?<=[\s;&|(])|^)\#[^\n]*|'[^']*'?|\"|\$\(\(|\$?\(|\)|`|{_NAME}", re.DOTALL | re.ASCII
)
_QUOTED: Final = re.compile(rf"\\.|\"|\$\(\(|\$\(|`|{_NAME}", re.DOTALL | re.ASCII)
_PLAIN: Final = re.compile(r"\{\{[^{}]*\}\}|\{(?P<name>[A-Za-z_]\w*(?:\.\w+)*)\}", re.ASCII)
_SHELLS: Final = frozenset({"sh", "bash", "dash", "ash", "ksh", "zsh", "fish", "csh", "tcsh"})


class Script(NamedTuple):
    """A shell's text, and the variables that it expects."""

    text: str
    variables: dict[str, str]
    names: tuple[str, ...]
    """The placeholders' own names, in the order of the variables."""


def script(text: str, context: Mapping[str, Any]) -> Script:
    """A shell command with variables for its placeholders. Raises ConfigurationError for one without a value, and for
    one in arithmetic, or between backticks in quotes: there a shell would read it."""
    variables: dict[str, str] = {}
    names: dict[str, str] = {}
    parts: list[str] = []
    at, within = 0, _Within()
    # To lose track of the quotes costs a literal quote in a word; a value is not run either way.
    while match := (_QUOTED if within.quotes else _BARE).search(text, at):
        parts.append(text[at : match.start()])
        at = match.end()
        found, name = match[0], match["name"]
        if name:
            within.check(name)
            if name not in names:
                names[name] = f"{VARIABLE}{len(names) + 1}"
                variables[names[name]] = text_of(name, context)
            found = f"${{{names[name]}}}" if within.quotes else f'"${{{names[name]}}}"'
        elif found.startswith("{{"):
            found = found[1:-1]
        else:
            within.meet(found)
        parts.append(found)
    return Script("".join(parts) + text[at:], variables, tuple(names))


class _Within:
    """What a place in a shell command is within: quotes, substitutions, arithmetic."""

    def __init__(self) -> None:
        self._open: list[str] = []

    @property
    def quotes(self) -> bool:
        """Whether the innermost are double quotes."""
        return self._open[-1:] == ['"']

    def meet(self, mark: str) -> None:
        """Something begins or ends here, or neither."""
        if mark == '"' and self.quotes:
            self._open.pop()
        elif mark == "`" and mark in self._open:
            del self._open[self._open.index(mark) :]
        elif mark == "$((":
            self._open += ["((", "("]
        elif mark in ('"', "`", "(", "$("):
            self._open.append(mark.removeprefix("$"))
        elif mark == ")" and self._open[-1:] in (["("], ["(("]):
            self._open.pop()

    def check(self, name: str) -> None:
        """Raises ConfigurationError where a value cannot stand."""
        if "((" in self._open:
            story = "stands in arithmetic, where a shell would compute what it holds; compute it before"
        elif "`" in self._open and '"' in self._open[: self._open.index("`")]:
            story = "stands between backticks in quotes; write $(…) instead of them"
        else:
            return
        raise ConfigurationError(f"the placeholder {{{name}}} {story}")


def arguments(command: list[str], context: Mapping[str, Any]) -> list[str]:
    """A command as a list, with the values in place: each item stays one argument, and no shell reads it.

    Raises ConfigurationError for a placeholder without a value, or in the text that a shell is given to run.
    """
    if command and command[0].rpartition("/")[2] in _SHELLS:
        for option, text in pairwise(command):
            if option.startswith("-") and not option.startswith("--") and "c" in option and any(placeholders(text)):
                raise ConfigurationError(
                    f"{text!r} would be run by {command[0]} with values in it; give the command as one text instead"
                )
    return [filled(item, context) for item in command]


def filled(text: str, context: Mapping[str, Any], encode: Callable[[str], str] = str) -> str:
    """The text with its placeholders replaced. Raises ConfigurationError for one without a value."""
    return _PLAIN.sub(lambda match: encode(text_of(match["name"], context)) if match["name"] else match[0][1:-1], text)


def placeholders(text: str) -> Iterator[str]:
    """The names that a text asks for."""
    return (match["name"] for match in _PLAIN.finditer(text) if match["name"])


def text_of(name: str, context: Mapping[str, Any]) -> str:
    """A value as text: texts as they are, the rest as JSON. Raises ConfigurationError for what is not there."""
    value: Any = context
    for step in name.split("."):
        value = value.get(step) if isinstance(value, Mapping) else None
        if value is None:
            raise ConfigurationError(
                f"the placeholder {{{name}}} has no value in the stage's context; write {{{{{name}}}}} for the text"
            )
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if "\0" in text:
        raise ConfigurationError(f"the value of {{{name}}} holds U+0000, which no command can be given")
    return text
