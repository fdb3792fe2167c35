"""The statements of the outbox, made from the table of moves in `machine/outbox_entry.py`."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.orm import Session

from holdfast.audit.driven import Driven
from holdfast.backends.sql.join import Direct
from holdfast.machine.outbox_entry import CLAIM, TERMINAL, Move, OutboxStatus, Put
from holdfast.outbox.entry import OutboxEntry
from holdfast.outbox.rows import claimed_columns, claimed_entries, columns_of
from holdfast.outbox.subject import utc
from holdfast.outbox.tables import OutboxTables

_GATED_AT_LEAST: Final = 100  # so many of those with a gate are looked at, to find the oldest among them
_NEAR_AT_LEAST: Final = 50  # so many of the first of a queue are looked at, to see which keys have several
IDS: Final = "these_ids"
ID: Final = "this_id"
TOKEN: Final = "this_token"
NUMBER: Final = "how_many"
_TO: Final = "to_"
_IN_FLIGHT: Final[Any] = sa.literal_column(f"'{OutboxStatus.IN_FLIGHT}'")
_SUCCEEDED: Final[Any] = sa.literal_column(f"'{OutboxStatus.SUCCEEDED}'")
_UNCHECKED: Final = {"synchronize_session": False}


class _Ids(sa.types.UserDefinedType[Any]):
    """Ids as a text that the server reads: psycopg takes longer to write an array than the server to use it."""

    cache_ok = True
    render_bind_cast = True

    def get_col_spec(self, **_: Any) -> str:
        return "UUID[]"

    def bind_processor(self, dialect: sa.Dialect) -> Any:
        return list if dialect.driver == "asyncpg" else _array


class Statements:
    """The statements for one dialect. Each is made once, with parameters: to make one costs more than to run it."""

    def __init__(self, tables: OutboxTables, dialect: str, *, server_time: bool, block: bool) -> None:
        self.tables = tables
        self.outbox = tables.outbox
        self.dialect = dialect
        self.columns = columns_of(tables.outbox)
        self.returns_updates = dialect in ("postgresql", "sqlite")
        self.is_sqlite = dialect == "sqlite"
        self._block = block
        self._server_time = server_time and dialect == "postgresql"
        self._claims = Driven(self._claiming)
        self._held = Driven(lambda shape: self._moves[shape])
        self.candidates = self._candidates(sa.bindparam("now"), _number("size"), _number("more"), _number("near"))
        self._moves: dict[Any, Any] = {}
        self._locks: dict[bool, Any] = {}

    def claim(
        self,
        to: Session | Direct,
        *,
        queue: str,
        limit: int,
        lease: timedelta,
        token: UUID,
        who: str,
        now: datetime | None,
    ) -> list[OutboxEntry]:
        """Claim in one statement, for databases that return updates."""
        given: dict[str, Any] = {"from_queue": queue, "token": token, "who": who, "lease": lease}
        if now is not None:
            given |= {"now": now, "until": now + lease}
        rows = self._claims.fetch(self.connection(to), limit, given)
        return claimed_entries(rows, lease=lease, queue=queue, claim_token=token, claimed_by=who)

    def _claiming(self, limit: int) -> Any:
        now: Any = (
            sa.func.statement_timestamp()
            if self._server_time
            else sa.bindparam("now", type_=sa.DateTime(timezone=True))
        )
        until: Any = now + sa.bindparam("lease", type_=sa.Interval()) if self._server_time else sa.bindparam("until")
        parts = self._candidates(now, **{name: sa.literal_column(str(size)) for name, size in sizes(limit).items()})
        fresh, gated = (part.cte(name) for part, name in zip(parts, ("fresh", "gated"), strict=True))
        both = sa.union_all(sa.select(fresh), sa.select(gated)).subquery("due")
        chosen = (
            sa.select(both.c.entry_id)
            .order_by(both.c.enqueued_at, both.c.entry_id)
            .limit(sa.literal_column(str(limit)))
        )
        values = self.values(
            CLAIM,
            scrub=False,
            given={
                "last_attempt_at": now,
                "next_attempt_at": until,
                "claim_token": sa.bindparam("token", type_=sa.Uuid()),
                "claimed_by": sa.bindparam("who"),
            },
        )
        id = self.outbox.c.entry_id
        # Of a list a server knows that it is short, and looks for its rows one by one; of a query it may not.
        is_chosen = id == sa.any_(sa.func.array(chosen.scalar_subquery())) if self._server_time else id.in_(chosen)
        claim = self.outbox.update().where(is_chosen).values(values)
        return claim.returning(*claimed_columns(self.outbox, self.dialect)).execution_options(**_UNCHECKED)

    def _candidates(self, now: Any, size: Any, more: Any, near: Any) -> tuple[Any, Any]:
        """Due rows of a queue that are not paused, oldest first: those without a gate, and those whose gate is open.
        Each is read through its own index, up to a limit; rows that others have locked are passed over.
        """
        row = self.outbox.c
        mine = [row.queue == sa.bindparam("from_queue"), ~self._paused()]
        part = sa.select(row.entry_id, row.enqueued_at, row.ordering_key).where(*mine)
        fresh = part.where(row.fresh_at.is_not(None), self._has_its_turn(self._may_be_first(near)))
        gated = part.where(row.gate_at <= now, self._has_its_turn())
        fresh = fresh.order_by(row.fresh_at, row.entry_id)
        gated = gated.order_by(row.gate_at, row.enqueued_at, row.entry_id)
        return (
            fresh.limit(size).with_for_update(skip_locked=True, of=self.outbox),
            gated.limit(more).with_for_update(skip_locked=True, of=self.outbox),
        )

    def still_have_their_turn(self, ids: Collection[Any]) -> Any:
        """Which of these rows, locked by now, nothing of their keys is ahead of: asked of a view of the data that is
        younger than the rows."""
        row = self.outbox.c
        return sa.select(row.entry_id).where(row.entry_id.in_(ids), self._has_its_turn())

    def _paused(self) -> Any:
        queues = self.tables.queues
        return _exists(queues.c.queue == sa.bindparam("from_queue"))

    def _may_be_first(self, number: Any) -> Any:
        """Not one of those that wait behind another one among the first of the queue. It decides nothing that the turn
        would not, but it is one look into a small set: behind a long backlog of one key, the turn of each of its
        entries would be judged to find the first one of another key.
        """
        row, near = self.outbox.c, self.outbox.alias("near").c
        first = sa.select(near.entry_id, near.ordering_key, near.fresh_at)
        first = first.where(near.queue == sa.bindparam("from_queue"), near.fresh_at.is_not(None))
        some = first.order_by(near.fresh_at, near.entry_id).limit(number).subquery("some").c
        place = sa.func.row_number().over(partition_by=some.ordering_key, order_by=(some.fresh_at, some.entry_id))
        keyed = sa.select(some.entry_id, some.ordering_key, place.label("place")).where(some.ordering_key.is_not(None))
        ahead = keyed.cte("ahead").c
        return sa.or_(
            row.ordering_key.not_in(sa.select(ahead.ordering_key)),
            row.entry_id.in_(sa.select(ahead.entry_id).where(ahead.place == 1)),
        )

    def _has_its_turn(self, *conditions: Any) -> Any:
        """It is the oldest of its key that is under way or waits, and no younger one (which a requeue can overtake) is
        being called. Of one with a key, further conditions are asked first."""
        row, other, called = self.outbox.c, self.outbox.alias("other"), self.outbox.alias("called")
        ended = [OutboxStatus.SUCCEEDED] if self._block else sorted(TERMINAL)
        # The first one by its index, and not whether there is an older one: to find that there is none, a server that
        # knows how many a key has may well read all of them, for each of them.
        mine = sa.select(other.c.entry_id).where(
            other.c.order_key == row.ordering_key,
            other.c.status.not_in([sa.literal_column(f"'{one}'") for one in ended]),
        )
        oldest = mine.order_by(other.c.enqueued_at, other.c.entry_id).limit(sa.literal_column("1")).scalar_subquery()
        # Of an id that equals something a server expects one row, and would rather sort all than wait for fifty.
        is_oldest = sa.case((row.entry_id == oldest, sa.true()), else_=sa.false())
        under_way = _exists(called.c.called_key == row.ordering_key, called.c.entry_id != row.entry_id)
        return sa.or_(row.ordering_key.is_(None), sa.and_(*conditions, is_oldest, ~under_way))

    def values(self, move: Move, *, scrub: bool, given: Mapping[str, Any]) -> dict[str, Any]:
        """What a move puts into a row."""
        values: dict[str, Any] = {"status": str(move.to)}
        for name, put in move.puts.items():
            column = self.outbox.c[name]
            match put:
                case Put.GIVEN:
                    values[name] = _stored(given[name])
                case Put.ONE_MORE:
                    values[name] = column + 1
                case Put.ONE_LESS:
                    values[name] = sa.case((column > 0, column - 1), else_=0)
                case Put.SCRUBBED:
                    if scrub:
                        was = sa.func.coalesce(self.outbox.c.scrubbed, sa.false())
                        values |= {"scrubbed": sa.or_(was, column.is_not(None)), name: sa.null()}
                case value:
                    values[name] = value
        return values

    def update(self, move: Move, ids: Sequence[Any], *, scrub: bool, given: Mapping[str, Any]) -> Any:
        """Make a move with these rows; `given` may also hold values for columns that the move does not touch."""
        values = self.values(move, scrub=scrub, given=given)
        values |= {name: _stored(value) for name, value in given.items() if name not in move.puts}
        return self.outbox.update().where(self.outbox.c.entry_id.in_(ids)).values(values)

    def connection(self, to: Session | Direct) -> sa.Connection | Direct:
        return to if isinstance(to, Direct) else to.connection(bind_arguments={"clause": self.outbox})

    def move_all(self, session: Session, move: Move, ids: Sequence[Any], scrub: bool, given: Mapping[str, Any]) -> None:
        """The same values for all these rows, which are locked."""
        session.execute(self._moving(move, scrub, given, "all"), {IDS: self._ids(ids), **_parameters(given)})

    def move_each(
        self, session: Session, move: Move, scrub: bool, each: Sequence[tuple[Any, Mapping[str, Any]]]
    ) -> None:
        """Other values for each row; all are locked, and get values for the same columns."""
        change = self._moving(move, scrub, each[0][1], "each")
        session.execute(change, [{ID: entry_id, **_parameters(given)} for entry_id, given in each])

    def move_held(
        self, to: Session | Direct, move: Move, ids: Sequence[Any], token: Any, scrub: bool, given: Mapping[str, Any]
    ) -> Iterable[Any]:
        """The same values for those of the rows that the claim still holds, and which they were. In one statement, for
        databases that return updates."""
        shape = self._shape(move, scrub, given, "held")
        parameters = {IDS: self._ids(ids), TOKEN: token, NUMBER: len(ids), **_parameters(given)}
        rows = self._held.fetch(self.connection(to), shape, parameters)
        if self.dialect != "postgresql":
            return [row[0] for row in rows]
        number, moved = rows[0]
        return ids if number == len(ids) else moved or ()

    def _ids(self, ids: Sequence[UUID]) -> Any:
        """As the parameter takes them; of SQLite's the text is the same for any number."""
        return json.dumps([one.hex for one in ids]) if self.is_sqlite else ids

    def _moving(self, move: Move, scrub: bool, given: Mapping[str, Any], form: str) -> Any:
        return self._moves[self._shape(move, scrub, given, form)]

    def _shape(self, move: Move, scrub: bool, given: Mapping[str, Any], form: str) -> Any:
        """What a statement depends on; it is there from then on."""
        shape = move.name, scrub, form, *given
        if shape not in self._moves:
            self._moves[shape] = self._make_move(move, scrub, given, form)
        return shape

    def _make_move(self, move: Move, scrub: bool, given: Mapping[str, Any], form: str) -> Any:
        row = self.outbox.c
        named = {name: sa.bindparam(_TO + name, type_=row[name].type) for name in given}
        values = self.values(move, scrub=scrub, given=named)
        values |= {name: value for name, value in named.items() if name not in move.puts}
        change = self.outbox.update().values(values)
        if form == "each":
            return change.where(row.entry_id == sa.bindparam(ID, type_=sa.Uuid())).execution_options(**_UNCHECKED)
        change = change.where(self._among_ids()).execution_options(**_UNCHECKED)
        if form == "all":
            return change
        change = change.where(self.held_by(sa.bindparam(TOKEN, type_=sa.Uuid()))).returning(row.entry_id)
        if self.dialect != "postgresql":
            return change
        # Nearly always all of them: only otherwise it is worth the while to say which.
        moved, number = change.cte("moved"), sa.func.count()
        which = sa.func.array_agg(moved.c.entry_id, type_=postgresql.ARRAY(sa.Uuid()))
        return sa.select(number, sa.case((number < sa.bindparam(NUMBER, type_=sa.Integer()), which))).select_from(moved)

    def among(self, column: Any, name: str) -> Any:
        """Whether the column has one of the values that come under this name."""
        if self.dialect != "postgresql":
            return column.in_(sa.bindparam(name, expanding=True, type_=column.type))
        # One parameter, however many values: the server plans the statement once.
        kind: Any = postgresql.ARRAY(column.type)
        return column == sa.any_(sa.bindparam(name, type_=kind))

    def _among_ids(self) -> Any:
        """Whether a row's id is among those that `_ids` gives."""
        id = self.outbox.c.entry_id
        match self.dialect:
            case "postgresql":
                return id == sa.any_(sa.bindparam(IDS, type_=_Ids()))
            case "sqlite":
                given = sa.func.json_each(sa.bindparam(IDS, type_=sa.Text()))
                return id.in_(sa.select(given.table_valued("value").c.value))
        return self.among(id, IDS)

    def held_by(self, token: Any) -> Any:
        """Rows that a claim still holds."""
        row = self.outbox.c
        return sa.and_(row.status == _IN_FLIGHT, row.claim_token == token)

    def lock(self, session: Session, ids: Sequence[Any], groups: Collection[tuple[str, str]] = ()) -> Any:
        """Rows to settle, with all of their groups that have not succeeded, locked in the order of their ids."""
        subjects, operations = sorted({one for one, _ in groups}), sorted({one for _, one in groups})
        of_groups = {"subjects": subjects, "operations": operations} if groups else {}
        if groups and not self.returns_updates:
            # MySQL would read the whole table for the `or`; what is found first is locked, and read again, below.
            mine = sa.select(self.outbox.c.entry_id).where(self._unsucceeded())
            ids, of_groups = sorted({*ids, *session.execute(mine, of_groups).scalars()}), {}
        statement = self._locks.get(bool(of_groups))
        if statement is None:
            statement = self._locks[bool(of_groups)] = self._locking(bool(of_groups))
        return session.execute(statement, {IDS: self._ids(ids), **of_groups})

    def _locking(self, with_groups: bool) -> Any:
        row = self.outbox.c
        wanted = self._among_ids()
        if with_groups and self.dialect == "postgresql":
            # Of an `or` of arrays the server compares every row with every value, as soon as it does without an index.
            given = sa.cast(sa.bindparam(IDS, type_=_Ids()), _Ids())  # not every driver tells what it sends
            mine = sa.select(sa.func.unnest(given, type_=sa.Uuid()))
            wanted = row.entry_id.in_(sa.union(mine, self._siblings()))
        elif with_groups:
            wanted = sa.or_(wanted, self._unsucceeded())
        found = sa.select(
            row.entry_id, row.subject_id, row.operation, row.saga_id, row.status, row.claim_token, row.attempts
        )
        return found.where(wanted).order_by(row.entry_id).with_for_update()

    def _siblings(self) -> Any:
        other = self.outbox.alias("sibling").c
        mine = [
            other.subject_id.in_(_each("subjects", other.subject_id)),
            other.operation.in_(_each("operations", other.operation)),
        ]
        return sa.select(other.entry_id).where(*mine, other.status != _SUCCEEDED)

    def _unsucceeded(self) -> Any:
        row = self.outbox.c
        group = sa.and_(self.among(row.subject_id, "subjects"), self.among(row.operation, "operations"))
        return sa.and_(group, row.status != _SUCCEEDED)


def sizes(limit: int) -> dict[str, int]:
    """How many rows the parts of a claim look at."""
    return {"size": limit, "more": max(limit, _GATED_AT_LEAST), "near": max(limit, _NEAR_AT_LEAST)}


def _exists(*conditions: Any) -> Any:
    return sa.select(sa.literal_column("1")).where(*conditions).exists()


def _array(ids: Iterable[UUID]) -> str:
    return f"{{{','.join([one.hex for one in ids])}}}"


def _each(name: str, column: Any) -> Any:
    """The values that come under this name, for a column, as rows."""
    kind: Any = postgresql.ARRAY(column.type)
    return sa.select(sa.func.unnest(sa.bindparam(name, type_=kind), type_=column.type))


def _number(name: str) -> Any:
    """A limit as part of the statement's text: of a parameter the server knows too little to plan well."""
    return sa.bindparam(name, type_=sa.Integer(), literal_execute=True)


def _parameters(given: Mapping[str, Any]) -> dict[str, Any]:
    return {_TO + name: _stored(value) for name, value in given.items()}


def _stored(value: Any) -> Any:
    """Times in UTC: a database without time zones would keep the digits of another one."""
    return utc(value) if isinstance(value, datetime) else value
