"""How records of a kind lie in Redis: keys, documents, and the bytes by which values are ordered.

A record is a JSON array under `{prefix}:kind:d:id`, searched fields first, with "\\n," between its elements, so that a
script finds a field without reading JSON and puts it back unread: numbers keep all their digits.

An index is a family of sorted sets, one for each combination of equal values, in which every score is 0: members are
ordered by their bytes, and are made of the order field's value and the id. So texts and numbers of any size have the
order that Python gives them, ties go by id, and any place in a set can be named by its member.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from hashlib import sha1
from json.encoder import encode_basestring
from operator import itemgetter
from typing import Any, Final, Generic

from holdfast.store.record import Index, Kind, R, Value

BY_ID: Final = Index((), "id")
ID, TEXT, NUMBER = 0, 1, 2
_LONG: Final = 1000
_LARGE: Final = 4096
_PLANS: Final = 256


def utf8(text: str) -> bytes:
    """Bytes that sort as the text does. Half a surrogate pair has some too: whatever Python holds comes back."""
    return text.encode("utf-8", "surrogatepass")


def token(value: Any) -> str:
    """The JSON text of a value: equal values have equal ones."""
    return _TOKENS.get(type(value), _other_token)(value)


def storable(value: Any) -> bool:
    """Whether a record can have the value, or one that is equal to it."""
    return value is None or isinstance(value, str | int) or (isinstance(value, float) and value.is_integer())


def order(value: Value, style: int) -> bytes:
    """Bytes that sort as the value does, as in `lua/read.lua`. Raises TypeError for a value of another type."""
    if style != NUMBER:
        if not isinstance(value, str):
            raise TypeError(f"a text is compared with {value!r}; give a text")
        return utf8(value) if style == ID else utf8(value).replace(b"\0", b"\0\xff") + b"\0"
    if not isinstance(value, int):
        raise TypeError(f"a whole number is compared with {value!r}; give a whole number")
    digits = str(abs(value))
    if value < 0:
        return bytes((64 - len(digits),)) + digits.translate(_COMPLEMENT).encode()
    return bytes((64 + len(digits),)) + digits.encode()


class Layout(Generic[R]):
    """The layout of one kind. `columns` is the order of the fields in its documents."""

    def __init__(self, prefix: str, kind: Kind[R], columns: Sequence[str]) -> None:
        root = f"{{{prefix}}}:{kind.name}"
        self.kind = kind
        self.documents = utf8(f"{root}:d:")
        self.counter = utf8(f"{root}:tally")
        self.arrivals = utf8(f"{root}:arrivals")
        self.at = {name: place for place, name in enumerate(columns, 1)}
        self.style = {column.name: TEXT if column.is_text else NUMBER for column in kind.columns} | {"id": ID}
        self.nullable = {column.name for column in kind.columns if column.nullable}
        self.indexes = tuple(dict.fromkeys((*kind.indexes, BY_ID)))
        self._root = root
        self._columns = itemgetter(*(kind.positions[name] for name in columns))
        self._record = itemgetter(*(self.at[column.name] - 1 for column in kind.columns))
        self._make: Callable[[Any], R] = kind.record._make  # type: ignore[attr-defined]  # every NamedTuple has it
        self._born = None if kind.born is None else kind.positions[kind.born]
        self.width = len(columns)
        self.head = searched(kind)
        self.searched = max(self.at[name] for name in self.head)
        self.plan = self._plan(None)
        self._heads = itemgetter(*(kind.positions[name] for name in columns[: self.searched]))
        self._plans: dict[tuple[int, ...], str] = {}

    def key(self, id: Any) -> bytes:
        """Where the record with this id is; nothing is where an id that is no text leads."""
        return self.documents + utf8(id) if isinstance(id, str) else self.documents[:-1]

    def version(self, record: Any) -> bytes:
        """What tells whether a stored record is this one."""
        return b"%d" % record.version if self._born is None else b"%d,%d" % (record.version, record[self._born])

    def document(self, record: Any) -> bytes:
        return utf8("[" + "\n,".join([_TOKENS.get(type(v), _other_token)(v) for v in self._columns(record)]) + "]")

    def successor(self, old: Any, new: Any) -> bytes:
        """The document of `new`, or one in which digests stand for long texts that `old` has too."""
        document = self.document(new)
        if len(document) < _LARGE:
            return document
        parts = [
            _digest(value) if at > self.searched and _stays(was, value) else token(value)
            for at, (was, value) in enumerate(zip(self._columns(old), self._columns(new), strict=True), 1)
        ]
        return utf8("~" + "\n,".join(parts) + "]")

    def records(self, documents: Iterable[bytes]) -> list[R]:
        rows = json.loads(b"[" + b",".join(documents) + b"]")
        width, pick, make = self.width, self._record, self._make
        return [make(pick(row if len(row) >= width else row + [None] * (width - len(row)))) for row in rows]

    def index_key(self, index: Index, tokens: Iterable[str]) -> str:
        """The set of those records whose equal fields have these values."""
        return f"{self._root}:{','.join(index.equal)}>{index.by}:{','.join(tokens)}"

    def swap_plan(self, old: Any, new: Any) -> str:
        """The plan for those fields in which the two differ."""
        pairs = zip(self._heads(old), self._heads(new), strict=True)
        changed = tuple([at for at, (was, value) in enumerate(pairs, 1) if was != value and at > 2])
        plan = self._plans.get(changed)
        if plan is None:
            plan = self._plan(changed)
            if len(self._plans) < _PLANS:
                self._plans[changed] = plan
        return plan

    def _plan(self, changed: tuple[int, ...] | None) -> str:
        """What `lua/write.lua` must know of the kind, or of some fields of it, as JSON."""
        at, kind = self.at, self.kind

        def concerned(names: Iterable[str]) -> bool:
            return changed is None or any(at[name] in changed for name in names)

        return json.dumps(
            [
                self.documents.decode(),
                self.searched,
                [
                    [self.index_key(index, ()), [at[name] for name in index.equal], at[index.by], self.style[index.by]]
                    for index in self.indexes
                    if concerned((*index.equal, index.by))
                ],
                [[f"{self._root}:unique:{name}", at[name]] for name in kind.unique if concerned((name,))],
                [self.counter.decode(), [at[name] for name in kind.tally]]
                if kind.tally and concerned(kind.tally)
                else [],
                [self.arrivals.decode(), [at[name] for name in kind.arrivals]] if kind.arrivals and not changed else [],
                *([] if changed is None and kind.born is None else [False if changed is None else changed]),
                *([] if kind.born is None else [at[kind.born]]),
            ],
            separators=(",", ":"),
        )


def searched(kind: Kind[Any]) -> list[str]:
    """The fields that scripts look at, the common three first."""
    fields = ["id", "version", "due_at", *kind.unique, *kind.tally, *kind.arrivals]
    for index in kind.indexes:
        fields += [*index.equal, index.by]
    fields += [] if kind.born is None else [kind.born]
    return list(dict.fromkeys(fields))


def _stays(was: Any, value: Any) -> bool:
    return isinstance(value, str) and len(value) > _LONG and was == value


def _digest(text: str) -> str:
    return "=" + sha1(utf8(token(text)), usedforsecurity=False).hexdigest()


def _other_token(value: Any) -> str:
    if isinstance(value, str):
        return encode_basestring(value)
    if isinstance(value, int):
        return int.__repr__(value)
    if storable(value):
        return int.__repr__(int(value))
    raise TypeError(f"{value!r} cannot be stored; the fields of a record are texts, whole numbers and None")


_TOKENS: Final[dict[type, Callable[[Any], str]]] = {
    str: encode_basestring,
    int: int.__repr__,
    type(None): lambda _: "null",
    bool: lambda value: "1" if value else "0",
}
_COMPLEMENT: Final = str.maketrans("0123456789", "9876543210")
