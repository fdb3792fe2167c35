"""Checkpoints: what the end of each stream was at a time. Kept elsewhere, they expose that an end was cut off."""

from __future__ import annotations

import hmac
import json
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any, Final, NamedTuple

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from holdfast.audit.chain import canonical, digest, key_bytes, written
from holdfast.audit.rows import in_utc
from holdfast.audit.tables import AuditTables
from holdfast.errors import AuditIntegrityError

SIGNATURE: Final = "signature"


class Checkpoint(NamedTuple):
    """The last event of a stream at a time: its number and its hash."""

    stream: str
    seq: int
    event_hash: str
    taken_at: datetime


class StreamEnd(NamedTuple):
    """How far a stream goes, by its head, and the last checkpoint of it."""

    stream: str
    seq: int
    checkpoint: Checkpoint | None


def take(session: Session, tables: AuditTables, at: datetime) -> list[Checkpoint]:
    """Checkpoints of all streams, kept in the table of checkpoints where there is one.

    Raises AuditIntegrityError when a stream ends before its last checkpoint: one taken now would cover that up.
    """
    assert tables.heads is not None
    head = tables.heads.c
    found = session.execute(sa.select(head.stream, head.seq, head.last_hash).where(head.seq > 0).order_by(head.stream))
    taken = [Checkpoint(row.stream, row.seq, row.last_hash, at) for row in found]
    if tables.checkpoints is not None:
        before = latest(session, tables)
        ends = {one.stream: one for one in taken}
        for one in before.values():
            now = ends.get(one.stream)
            if now is None or now.seq < one.seq or (now.seq == one.seq and now.event_hash != one.event_hash):
                raise AuditIntegrityError(
                    f"stream {one.stream!r} does not reach event {one.seq}, where it was at {written(one.taken_at)}; "
                    "run: holdfast audit verify"
                )
        new = [one._asdict() for one in taken if one.stream not in before or before[one.stream].seq < one.seq]
        if new:
            session.execute(_insert_once(tables.checkpoints, session.get_bind().dialect.name), new)
    return taken


def _insert_once(checkpoints: sa.Table, dialect: str) -> Any:
    """Two may take the same checkpoint at once."""
    if dialect in ("mysql", "mariadb"):
        return checkpoints.insert().prefix_with("IGNORE")
    return (postgresql if dialect == "postgresql" else sqlite).insert(checkpoints).on_conflict_do_nothing()


def latest(session: Session, tables: AuditTables) -> dict[str, Checkpoint]:
    """The last checkpoint of each stream."""
    assert tables.checkpoints is not None
    row = tables.checkpoints.c
    newest = sa.select(row.stream, sa.func.max(row.seq).label("seq")).group_by(row.stream).subquery()
    both = sa.and_(row.stream == newest.c.stream, row.seq == newest.c.seq)
    found = session.execute(sa.select(tables.checkpoints).join(newest, both))
    return {one.stream: one for one in map(_of_row, found)}


def stream_ends(session: Session, tables: AuditTables, limit: int, after: str | None = None) -> list[StreamEnd]:
    """The ends of some streams, by name."""
    assert tables.heads is not None
    head = tables.heads.c
    some = sa.select(head.stream, head.seq).order_by(head.stream).limit(limit)
    rows = session.execute(some if after is None else some.where(head.stream > after)).all()
    last: dict[str, Checkpoint] = {}
    if rows and tables.checkpoints is not None:
        row = tables.checkpoints.c
        those = row.stream.in_([one.stream for one in rows])
        newest = sa.select(row.stream, sa.func.max(row.seq).label("seq")).where(those).group_by(row.stream).subquery()
        both = sa.and_(row.stream == newest.c.stream, row.seq == newest.c.seq)
        last = {one.stream: _of_row(one) for one in session.execute(sa.select(tables.checkpoints).join(newest, both))}
    return [StreamEnd(one.stream, one.seq, last.get(one.stream)) for one in rows]


def kept(session: Session, tables: AuditTables, stream: str) -> list[Checkpoint]:
    """The checkpoints of a stream in the table, oldest first."""
    if tables.checkpoints is None:
        return []
    row = tables.checkpoints.c
    found = session.execute(sa.select(tables.checkpoints).where(row.stream == stream).order_by(row.seq))
    return [_of_row(one) for one in found]


def export_checkpoints(checkpoints: Iterable[Checkpoint], key: bytes | str | None = None) -> str:
    """Checkpoints as JSON lines; with a key each line is signed, so that it can be kept where others write."""
    signing = key_bytes(key)
    return "".join(_line(one, signing) + "\n" for one in checkpoints)


def import_checkpoints(lines: str | Iterable[str], key: bytes | str | None = None) -> list[Checkpoint]:
    """The checkpoints of JSON lines.

    Raises AuditIntegrityError, naming the line, for one that is not a checkpoint, or with a key for one that this key
    did not sign.
    """
    signing = key_bytes(key)
    return list(_parsed(lines.split("\n") if isinstance(lines, str) else lines, signing))


def _of_row(row: Any) -> Checkpoint:
    return Checkpoint(row.stream, row.seq, row.event_hash, in_utc(row.taken_at))


def _fields(one: Checkpoint) -> dict[str, Any]:
    return {**one._asdict(), "taken_at": written(one.taken_at)}


def _line(one: Checkpoint, key: bytes | None) -> str:
    fields = _fields(one)
    if key is not None:
        fields[SIGNATURE] = digest(canonical(fields), key)
    return canonical(fields).decode()


def _parsed(lines: Iterable[str], key: bytes | None) -> Iterator[Checkpoint]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            fields: dict[str, Any] = json.loads(line)
            signature = fields.pop(SIGNATURE, None)
            at = datetime.fromisoformat(fields["taken_at"])
            one = Checkpoint(str(fields["stream"]), fields["seq"], str(fields["event_hash"]), in_utc(at))
            if type(one.seq) is not int or _fields(one).keys() != fields.keys():
                raise ValueError("wrong fields")
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise AuditIntegrityError(f"line {number} is no checkpoint of an audit trail: {error}") from error
        if key is not None:
            mine = digest(canonical(_fields(one)), key)
            if not isinstance(signature, str) or not hmac.compare_digest(mine.encode(), signature.encode()):
                raise AuditIntegrityError(f"line {number} was not signed with this key; do not rely on it")
        yield one
