"""What a dead letter says of the call it stands for: arguments by name, the error in words, who caused it.

Nothing here touches a store. An argument that is not JSON costs that argument, never the letter.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any, Final
from weakref import WeakKeyDictionary

from holdfast.core.classify import status_of
from holdfast.core.outcome import Outcome, OutcomeKind, describe_error
from holdfast.core.redact import MASK, is_secret_key, redact
from holdfast.errors import CircuitOpen
from holdfast.store.codec import clean_text, plain, plain_to_json

CIRCUIT_OPEN: Final = "CIRCUIT_BREAKER_OPEN"
SMALL: Final = 4 * 1024
REPLAYABLE: Final = 256 * 1024
"""How many bytes of JSON a letter keeps of each part, where nobody could replay it and where somebody can."""

_DOMAIN: Final = re.compile(r"[a-z][a-z0-9_]*(\.[a-z0-9_]+)*")
_LONGEST_DOMAIN: Final = 64
_PREVIEW: Final = 500
OTHER: Final = "other"
_LEVELS: Final = 3  # a letter's payload, its request_data and the arguments are around each argument
_LONGEST_NUMBER: Final = 8192


def domain_of(name: str) -> str:
    """The name as a domain: lower case, dots between words of letters, digits and underscores; else "other"."""
    if len(name) <= _LONGEST_DOMAIN and _DOMAIN.fullmatch(name):
        return name
    made = re.sub(r"[^a-z0-9_.]+", "_", name.lower())
    made = re.sub(r"\.+", ".", made).strip("._")
    return made if len(made) <= _LONGEST_DOMAIN and _DOMAIN.fullmatch(made) else OTHER


def failure_type_of(outcome: Outcome[Any]) -> str:
    """`CIRCUIT_BREAKER_OPEN` for an open breaker's refusal, else `MAX_RETRIES_` and the exception's class."""
    if outcome.reason == CircuitOpen.reason:
        return CIRCUIT_OPEN
    kind = outcome.kind.value if outcome.error is None else type(outcome.error).__name__
    return f"MAX_RETRIES_{kind.upper()}"[:191]


def error_code_of(outcome: Outcome[Any]) -> str:
    """The HTTP status where there is one, the reason of a refusal, else the exception's class."""
    try:
        status = None if outcome.error is None else status_of(outcome.error)
    except Exception:  # an exception of the user's, whose attributes may be anything
        status = None
    if status is not None:
        return str(status)
    if outcome.kind is OutcomeKind.REJECTED:
        return outcome.reason or ""
    return "" if outcome.error is None else type(outcome.error).__name__


def error_message_of(outcome: Outcome[Any]) -> str:
    if outcome.error is None:
        return redact(clean_text(outcome.detail or outcome.kind.value))
    return redact(clean_text(_said(outcome.error)))


SignatureOf = Callable[[Callable[..., Any]], inspect.Signature]


class Signatures:
    """Remembers signatures for as long as their functions live: asking costs more than the rest of a letter."""

    def __init__(self) -> None:
        self._known: WeakKeyDictionary[Callable[..., Any], inspect.Signature] = WeakKeyDictionary()

    def of(self, fn: Callable[..., Any]) -> inspect.Signature:
        try:
            known = self._known.get(fn)
            if known is None:
                known = self._known[fn] = inspect.signature(fn)
        except TypeError:  # it cannot be hashed, or not be referred to weakly
            return inspect.signature(fn)
        return known


class Arguments:
    """A call's arguments as a letter keeps them.

    `kept` are those that are JSON, `omitted` the types of the others, `masked` the paths whose values were secret.
    """

    __slots__ = ("bound", "kept", "masked", "omitted")

    def __init__(
        self,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        signature_of: SignatureOf = inspect.signature,
    ) -> None:
        self.bound = bind(fn, args, kwargs, signature_of)
        self.kept: dict[str, Any] = {}
        self.omitted: dict[str, str] = {}
        self.masked: list[str] = []
        for name, value in self.bound.items():
            try:
                self.kept[name] = self._mask(name, plain(value, name, _LEVELS), name)
            except Exception as error:  # also what a strange object does when it is looked at
                self.omitted[name] = f"{type(value).__name__}: {redact(_said(error), 120)}"

    def _mask(self, key: str, value: Any, path: str) -> Any:
        if value is not None and is_secret_key(key):
            self.masked.append(path)
            return MASK
        if isinstance(value, dict):
            return {name: self._mask(name, item, f"{path}.{name}") for name, item in value.items()}
        if type(value) is int and value.bit_length() > _LONGEST_NUMBER:
            raise ValueError(f"{path} is a number of {value.bit_length()} bits, which Python does not write out")
        if isinstance(value, list):
            return [self._mask("", item, f"{path}[{at}]") for at, item in enumerate(value)]
        return value

    def request(self, function: str) -> dict[str, Any]:
        """The letter's request_data."""
        data: dict[str, Any] = {"function": function, "args": self.kept}
        if self.omitted:
            data["omitted"] = self.omitted
        if self.masked:
            data["masked"] = self.masked
        return data


def function_name(fn: Callable[..., Any]) -> str:
    """The name of a function that is not registered."""
    try:
        return str(getattr(fn, "__qualname__", type(fn).__name__))
    except Exception:  # as above
        return type(fn).__name__


def bind(
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    signature_of: SignatureOf = inspect.signature,
) -> dict[str, Any]:
    """The arguments by the names of the function's parameters; by position where it has none that tell."""
    try:
        bound = signature_of(fn).bind(*args, **kwargs)
    except Exception:  # no signature, arguments that do not fit it, or an object that objects to being looked at
        return {**{f"arg{at}": value for at, value in enumerate(args)}, **kwargs}
    named: dict[str, Any] = {}
    for name, value in bound.arguments.items():
        kind = bound.signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_KEYWORD:
            named.update(value)
        else:
            named[name] = value
    named.pop("self", None)
    return named


def capped(data: dict[str, Any], limit: int) -> dict[str, Any]:
    """The data, which is plain, or what stands for it when it is larger than `limit` bytes of JSON."""
    text = plain_to_json(data)
    size = len(text) if text.isascii() else len(text.encode())
    if size <= limit:
        return data
    return {"_truncated": True, "original_size": size, "preview": redact(text[: _PREVIEW * 4], _PREVIEW)}


def unreplayable(request_data: Mapping[str, Any]) -> str | None:
    """Why the kept arguments are not those of the call; None when they are."""
    if request_data.get("_truncated"):
        return f"the arguments were too large to keep ({request_data.get('original_size')} bytes)"
    if omitted := request_data.get("omitted"):
        return f"arguments that are not JSON were not kept: {', '.join(sorted(omitted))}"
    if masked := request_data.get("masked"):
        return f"secret arguments were masked: {', '.join(masked)}"
    return None


def _said(error: BaseException) -> str:
    try:
        return describe_error(error)
    except Exception:  # a `__str__` that raises
        return type(error).__name__
