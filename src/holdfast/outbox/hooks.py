"""Telling the host, once everything is on disk: nothing that a hook does or raises reaches an entry."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from holdfast.audit.sessions import Sessions
from holdfast.outbox.entry import OutboxEntry
from holdfast.outbox.runner_errors import error_name
from holdfast.outbox.signal import AbandonedSignal
from holdfast.outbox.subject import LONGEST

_log: Final = logging.getLogger("holdfast.outbox")


class Notice(NamedTuple):
    """That an entry was abandoned, is overdue, or could not be verified: `method` is the hook's."""

    method: str
    entry: OutboxEntry
    error: str
    attempts: int


class Hooks:
    """Calls a host's hook, in a thread, so that a slow one holds up no settle."""

    def __init__(self, hook: Any, sessions: Sessions) -> None:
        self._hook = hook
        self._sessions = sessions

    async def tell(self, notices: Sequence[Notice]) -> None:
        if self._hook is None or not notices:
            return
        if not self._sessions.is_async and self._sessions.shares_one_connection():
            self._call(notices)  # another thread would see another database, or break into this one's transaction
        else:
            await asyncio.to_thread(self._call, notices)

    def _call(self, notices: Sequence[Notice]) -> None:
        for method, entry, error, attempts in notices:
            try:
                told = getattr(self._hook, method, None)
                if told is not None:
                    told(
                        AbandonedSignal(
                            attempts=attempts,
                            entry_id=entry.entry_id,
                            error=error[:LONGEST],
                            operation=entry.operation,
                            resolver=entry.resolver,
                            subject_id=entry.subject_id,
                        )
                    )
            except BaseException as failure:  # whatever it is, it is the host's, and the entry has its outcome
                _log.error("%s failed for entry %s: %s", method, entry.entry_id, error_name(failure))
