"""CloudEvents 1.0: what a published message says about itself, in the two forms that every binding knows.

In the *structured* form the body is a JSON document that holds attributes and data. In the *binary* form the body is
the data alone, and the attributes are headers.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final
from urllib.parse import quote, unquote

from holdfast.errors import InvalidValue
from holdfast.outbox.subject import utc
from holdfast.store.codec import plain, plain_to_json

SPEC_VERSION: Final = "1.0"
JSON: Final = "application/json"
STRUCTURED: Final = "application/cloudevents+json"
HTTP_PREFIX: Final = "ce-"
AttributeValue = str | int | bool

_CORE: Final = ("id", "source", "type", "time", "subject", "datacontenttype", "dataschema")
_TAKEN: Final = frozenset({*_CORE, "specversion", "data", "data_base64"})
_SETTABLE: Final = frozenset({"subject", "source", "dataschema"})
_NAME: Final = re.compile(r"[a-z0-9]+")
_MEDIA_TYPE: Final = re.compile(r"[\w!#$&^.+-]+/[\w!#$&^.+-]+ *(;.*)?", re.ASCII)
_NO_URI: Final = re.compile(r"[\s<>\"{}|\\^`]")
# What the specification bars from texts: controls, halves of surrogate pairs, and characters that are none.
_BARRED: Final = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")
# Everything printable of ASCII but space, quote and percent goes into a header as it is.
_SAFE_IN_HEADER: Final = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in '"%')


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudEvent:
    """An event. `data` is JSON for a JSON content type, otherwise a text or bytes. The attributes are checked.

    `source` and `id` together name it for ever, so a repeated delivery has the same.
    """

    id: str
    source: str
    type: str
    data: Any = None
    time: datetime | None = None
    subject: str | None = None
    datacontenttype: str | None = JSON
    dataschema: str | None = None
    extensions: Mapping[str, AttributeValue] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("id", "source", "type"):
            _check_text(name, getattr(self, name), needed=True)
        for name in ("subject", "datacontenttype", "dataschema"):
            if getattr(self, name) is not None:
                _check_text(name, getattr(self, name), needed=True)
        for name in ("source", "dataschema"):
            if _NO_URI.search(getattr(self, name) or ""):
                raise ValueError(f"CloudEvent.{name} must be a URI, got {getattr(self, name)!r}; quote what it holds")
        if self.datacontenttype is not None and not _MEDIA_TYPE.fullmatch(self.datacontenttype):
            fix = "use one such as 'application/json'"
            raise ValueError(f"CloudEvent.datacontenttype must be a media type, got {self.datacontenttype!r}; {fix}")
        for name, value in self.extensions.items():
            check_extension(name, value)
        if self.time is not None:
            object.__setattr__(self, "time", utc(self.time))

    @property
    def body(self) -> bytes:
        """The data alone, as the binary form has it."""
        if isinstance(self.data, bytes):
            return self.data
        if is_json(self.datacontenttype):
            return plain_to_json(plain(self.data, "data")).encode()
        if self.data is None:
            return b""
        if isinstance(self.data, str):
            return self.data.encode()
        kind = type(self.data).__name__
        raise ValueError(f"CloudEvent.data of type {self.datacontenttype!r} must be a text or bytes, got a {kind}")

    def attributes(self) -> dict[str, AttributeValue]:
        """All attributes that are set, by their names in the specification."""
        mine: dict[str, AttributeValue | None] = {name: getattr(self, name) for name in _CORE if name != "time"}
        mine["time"] = None if self.time is None else rfc3339(self.time)
        kept = {name: value for name, value in mine.items() if value is not None}
        return {"specversion": SPEC_VERSION, **kept, **self.extensions}

    def to_json(self) -> bytes:
        """The structured form, of content type `application/cloudevents+json`."""
        document: dict[str, Any] = dict(self.attributes())
        if isinstance(self.data, bytes):
            document["data_base64"] = base64.b64encode(self.data).decode()
        elif self.data is not None:
            document["data"] = plain(self.data, "data")
        return plain_to_json(document).encode()

    def to_headers(self, prefix: str = HTTP_PREFIX, *, quoted: bool = True) -> dict[str, str]:
        """The attributes of the binary form, but for the content type, which a protocol has a place of its own for.

        `quoted` is how HTTP and NATS have it: what is not plain ASCII is percent-encoded.
        """
        return {
            prefix + name: quote(text, safe=_SAFE_IN_HEADER) if quoted else text
            for name, value in self.attributes().items()
            if name != "datacontenttype"
            for text in (_text(value),)
        }

    @classmethod
    def from_json(cls, document: bytes | str) -> CloudEvent:
        """The event of a structured form. Raises ValueError for one that is none."""
        found = json.loads(document)
        if not isinstance(found, dict):
            raise ValueError(f"a CloudEvent is a JSON object, got a {type(found).__name__}")  # noqa: TRY004  # bad data
        data = found.pop("data", None)
        if (encoded := found.pop("data_base64", None)) is not None:
            data = base64.b64decode(encoded, validate=True)
        return cls._of({"datacontenttype": JSON, **found}, data)

    @classmethod
    def from_headers(
        cls,
        headers: Mapping[str, str],
        body: bytes,
        *,
        content_type: str | None = None,
        prefix: str = HTTP_PREFIX,
        quoted: bool = True,
    ) -> CloudEvent:
        """The event of either form, told by the content type; header names are compared without case.

        Raises ValueError for what is no CloudEvent.
        """
        lowered = {name.lower(): value for name, value in headers.items()}
        kind = content_type or lowered.get("content-type")
        if kind is not None and kind.lower().startswith(STRUCTURED):
            return cls.from_json(body)
        start = prefix.lower()
        found: dict[str, Any] = {
            name.removeprefix(start): unquote(value, errors="strict") if quoted else value
            for name, value in lowered.items()
            if name.startswith(start)
        }
        if kind is not None:
            found["datacontenttype"] = kind
        return cls._of({"datacontenttype": None, **found}, _data(body, kind))

    @classmethod
    def _of(cls, attributes: dict[str, Any], data: Any) -> CloudEvent:
        version = attributes.pop("specversion", None)
        if version != SPEC_VERSION:
            raise ValueError(f"specversion must be {SPEC_VERSION!r}, got {version!r}")
        lacking = [name for name in ("id", "source", "type") if name not in attributes]
        if lacking:
            raise ValueError(f"a CloudEvent has {', '.join(lacking)}, but this one has not")
        core = {name: attributes.pop(name) for name in _CORE if name in attributes}
        if core.get("time") is not None:
            core["time"] = datetime.fromisoformat(str(core["time"]).upper())
        there = {name: value for name, value in attributes.items() if value is not None}
        return cls(**core, data=data, extensions=there)


def event_with(attributes: Mapping[str, Any] | None, *, extensions: Mapping[str, Any], **core: Any) -> CloudEvent:
    """The event of a message that brings attributes along: some are the specification's own, others extensions.

    Raises ValueError for attributes that no event may have.
    """
    given = dict(attributes or {})
    own = {name: given.pop(name) for name in _SETTABLE & given.keys()}
    return CloudEvent(extensions={**extensions, **given}, **{**core, **own})


def check_message(topic: str, payload: Mapping[str, Any]) -> None:
    """Raises ValueError for a message of which no event could be made, so that whoever writes it hears of it."""
    attributes, content_type = payload.get("attributes"), payload.get("content_type")
    if not isinstance(attributes, Mapping | None) or not all(isinstance(name, str) for name in attributes or ()):
        raise InvalidValue(f"attributes must be a mapping of names to values, got {attributes!r}")
    try:
        event = event_with(
            attributes, id="0", source="check", type=payload.get("type") or topic,
            datacontenttype=content_type or JSON, data=payload["data"], extensions={},
        )  # fmt: skip
        if not is_json(content_type):
            _ = event.body
    except ValueError as error:
        raise InvalidValue(f"no message for {topic!r} can be made: {error}") from None


def is_json(content_type: str | None) -> bool:
    """Whether data of this type is a JSON value; without a type it is."""
    if content_type is None:
        return True
    plain_type = content_type.partition(";")[0].strip().lower()
    return plain_type.endswith(("/json", "+json"))


def check_extension(name: str, value: Any) -> None:
    """Raises ValueError for an attribute that no event may have."""
    if not _NAME.fullmatch(name) or name in _TAKEN:
        fix = "use lower-case letters and digits, and no name that the specification has taken"
        raise ValueError(f"CloudEvent has no extension {name!r}; {fix}")
    if isinstance(value, str):
        _check_text(name, value, needed=False)
    elif not isinstance(value, int) or not -(2**31) <= value < 2**31:
        raise ValueError(f"CloudEvent.{name} must be a text, a bool or an int of 32 bits, got {value!r}")


def tellable(text: str) -> str:
    """The text as an attribute may hold it: control characters, such as a composite id has, are percent-encoded."""
    return _BARRED.sub(lambda barred: quote(barred.group(), errors="replace"), text)


def rfc3339(at: datetime) -> str:
    return utc(at).isoformat().replace("+00:00", "Z")


def _check_text(name: str, value: Any, *, needed: bool) -> None:
    if not isinstance(value, str) or (needed and not value):
        raise ValueError(f"CloudEvent.{name} must be a text that is not empty, got {value!r}")
    if barred := _BARRED.search(value):
        at, code = barred.start(), f"U+{ord(barred.group()):04X}"
        raise ValueError(f"CloudEvent.{name} must not hold control characters, got {code} at {at}; leave it out")


def _text(value: AttributeValue) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _data(body: bytes, content_type: str | None) -> Any:
    if is_json(content_type):
        return json.loads(body) if body else None
    charset_is_plain = content_type is not None and content_type.lower().startswith("text/")
    return body.decode() if charset_is_plain else body
