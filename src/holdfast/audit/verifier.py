"""Verifying all streams or one, and taking checkpoints, from either colour."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Iterable
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID

from sqlalchemy.orm import Session

from holdfast.audit.chain import THE_ONLY
from holdfast.audit.checkpoints import Checkpoint, StreamEnd, stream_ends, take
from holdfast.audit.reading import aware
from holdfast.audit.sessions import writing
from holdfast.audit.tables import AuditTables
from holdfast.audit.verify import PAGE, Break, ChainVerification, Walk, stream_names, unchained
from holdfast.core.clock import SYSTEM_CLOCK
from holdfast.errors import ConfigurationError

Told = Callable[[str, int], object]
"""Called with a stream, and how many of its events are in order so far. What it raises ends the verification."""
Steps = Generator[Callable[[Session], Any], Any, list[ChainVerification]]


class Verifier:
    """Verifies the chain of a trail. Every method reads in short transactions, so that appends go on meanwhile."""

    def __init__(
        self,
        tables: AuditTables,
        run: Callable[[Callable[[Session], Any]], Any],
        arun: Callable[[Callable[[Session], Any]], Awaitable[Any]],
        *,
        key: bytes | None = None,
        stream_of: Callable[[str], str],
        page: int = PAGE,
    ) -> None:
        if tables.heads is None:
            raise ConfigurationError("this audit trail has no chain; give chain_heads to its DatabaseAuditSink")
        self._tables, self._run, self._arun = tables, run, arun
        self._key, self._stream_of, self._page = key, stream_of, page

    def verify(
        self,
        stream: str,
        *,
        checkpoints: Iterable[Checkpoint] = (),
        since: Checkpoint | None = None,
        until: Checkpoint | None = None,
        told: Told | None = None,
    ) -> ChainVerification:
        """Whether a stream is as it was written.

        It is held against the checkpoints in the database and those given. `since` starts behind a checkpoint that is
        trusted, `until` ends at one; `told` after each part that was read.
        """
        return self._drive(self._one(stream, tuple(checkpoints), since, until, told))[0]

    async def averify(
        self,
        stream: str,
        *,
        checkpoints: Iterable[Checkpoint] = (),
        since: Checkpoint | None = None,
        until: Checkpoint | None = None,
    ) -> ChainVerification:
        """`verify` from a coroutine."""
        return (await self._adrive(self._one(stream, tuple(checkpoints), since, until)))[0]

    def verify_all(
        self, *, checkpoints: Iterable[Checkpoint] = (), told: Told | None = None
    ) -> list[ChainVerification]:
        """The same for every stream of which there is an event, a head or a checkpoint, by name; `told` after each part
        that was read.
        """
        return self._drive(self._all(tuple(checkpoints), told))

    async def averify_all(self, *, checkpoints: Iterable[Checkpoint] = ()) -> list[ChainVerification]:
        """`verify_all` from a coroutine."""
        return await self._adrive(self._all(tuple(checkpoints)))

    def streams(self) -> list[str]:
        """The names of all streams."""
        names: set[str] = self._run(lambda session: stream_names(session, self._tables))
        return sorted(names)

    def ends(self, *, limit: int, after: str | None = None) -> list[StreamEnd]:
        """Some streams by name, how far each goes by its head, and its last checkpoint; `after` that name."""
        found: list[StreamEnd] = self._run(partial(stream_ends, tables=self._tables, limit=limit, after=after))
        return found

    def checkpoint(self, at: datetime | None = None) -> list[Checkpoint]:
        """Take a checkpoint of every stream, and keep it where there is a table for it.

        Raises AuditIntegrityError when a stream ends before its last checkpoint.
        """
        taken: list[Checkpoint] = self._run(self._checkpointing(at))
        return taken

    async def acheckpoint(self, at: datetime | None = None) -> list[Checkpoint]:
        """`checkpoint` from a coroutine."""
        taken: list[Checkpoint] = await self._arun(self._checkpointing(at))
        return taken

    def _checkpointing(self, at: datetime | None) -> Callable[[Session], list[Checkpoint]]:
        moment = SYSTEM_CLOCK.wall() if at is None else aware(at)
        return writing(lambda session: take(session, self._tables, moment))

    # Verifying is written once, as a generator of units of work; it is driven from either colour.

    def _drive(self, steps: Steps) -> list[ChainVerification]:
        answer: Any = None
        while True:
            try:
                work = steps.send(answer)
            except StopIteration as end:
                return list(end.value)
            answer = self._run(work)

    async def _adrive(self, steps: Steps) -> list[ChainVerification]:
        answer: Any = None
        while True:
            try:
                work = steps.send(answer)
            except StopIteration as end:
                return list(end.value)
            answer = await self._arun(work)

    def _one(
        self,
        stream: str,
        checkpoints: tuple[Checkpoint, ...],
        since: Checkpoint | None,
        until: Checkpoint | None,
        told: Told | None = None,
    ) -> Steps:
        for one in (since, until):
            if one is not None and one.stream != stream:
                raise ConfigurationError(f"the checkpoint is one of stream {one.stream!r}, not of {stream!r}")
        verified = yield from self._walk(stream, checkpoints, since, until, told)
        past = yield from self._unchained({stream})
        return [_with(verified, past.get(stream))]

    def _all(self, checkpoints: tuple[Checkpoint, ...], told: Told | None = None) -> Steps:
        names: set[str] = yield lambda session: stream_names(session, self._tables)
        names |= {one.stream for one in checkpoints}
        results = {}
        for stream in sorted(names):
            results[stream] = yield from self._walk(stream, checkpoints, None, None, told)
        past = yield from self._unchained(names)
        for stream, event_id in past.items():
            results[stream] = _with(results.get(stream, ChainVerification(True, stream=stream)), event_id)
        return [results[stream] for stream in sorted(results)]

    def _walk(
        self,
        stream: str,
        checkpoints: tuple[Checkpoint, ...],
        since: Checkpoint | None,
        until: Checkpoint | None,
        told: Told | None = None,
    ) -> Generator[Callable[[Session], Any], Any, ChainVerification]:
        walk = Walk(self._tables, stream, self._key, checkpoints=checkpoints, since=since, until=until, page=self._page)
        while walk.result is None:
            yield walk.step
            if told is not None:
                told(stream, walk.count)
        return walk.result

    def _unchained(self, names: set[str]) -> Generator[Callable[[Session], Any], Any, dict[str, UUID | None]]:
        """The first event of each stream that was written past the chain."""
        first: dict[str, UUID | None] = {}
        start = 0
        while True:
            found = yield partial(unchained, tables=self._tables, start=start, page=self._page)
            for subject_ref, event_id in found:
                first.setdefault(self._stream_among(names, subject_ref), event_id)
            if len(found) < self._page:
                return first
            start += len(found)

    def _stream_among(self, names: set[str], subject_ref: str) -> str:
        """Where the events of a subject belong, seen by the streams that are there: a verifier need not know how many
        the program uses.
        """
        for name in (subject_ref, THE_ONLY):
            if name in names:
                return name
        return self._stream_of(subject_ref)


def _with(verified: ChainVerification, unchained_id: UUID | None) -> ChainVerification:
    if unchained_id is None or not verified.verified:
        return verified
    return replace(verified, verified=False, first_broken_event_id=unchained_id, reason=Break.UNHASHED)
