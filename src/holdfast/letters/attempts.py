"""Replaying a letter: one holder at a time, fenced by a token."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Any, Final

from holdfast.letters.data import FailedOperationData, ReplayAttempt, attempts_of
from holdfast.letters.desk import Desk
from holdfast.letters.finding import below
from holdfast.letters.values import MINUTE, ago, checked_dict, is_id, resolver, size, sought, text, time
from holdfast.machine import dead_letter as machine
from holdfast.machine.dead_letter import LETTER, LetterRecord
from holdfast.store.codec import plain
from holdfast.store.ids import new_record_id
from holdfast.store.query import Condition, equal

_CHUNK: Final = 500


class Attempts(Desk):
    def try_acquire_for_replay(
        self,
        id: str,
        max_retries: int,
        force: bool = False,
        *,
        trigger: str = "",
        known: FailedOperationData | None = None,
    ) -> FailedOperationData | None:
        """The letter, held by the caller under `attempt_token`; None if it may not be acquired. One caller wins.

        `force` takes a pending letter or one that requires review, whatever its cap and delay, with a new budget.
        `trigger` goes into the attempt history. `known` is the letter as it was found; it saves reading it again.
        """
        decide = partial(_begun, cap=max_retries, force=force, trigger=text("trigger", trigger))
        after = self.change_read(id, decide, known)
        return None if after is None else self._lend(after)

    def acquire_known(
        self, letters: Sequence[FailedOperationData], triggers: Sequence[str], max_retries: int | None, force: bool
    ) -> list[FailedOperationData | None]:
        """These letters, which were read before, in one step; None for one that may not be acquired.

        Without `max_retries` each letter's own cap holds.
        """
        caps = [letter.max_retries if max_retries is None else max_retries for letter in letters]
        known = zip(letters, caps, triggers, strict=True)
        steps = [(letter, partial(_begun, cap=cap, force=force, trigger=cause)) for letter, cap, cause in known]
        after = self.change_known(steps)
        taken = [
            self.change_read(letter.id, decide) if got is None else got
            for (letter, decide), got in zip(steps, after, strict=True)
        ]
        return [None if got is None else self._lend(got) for got in taken]

    def acquire_many(
        self,
        *,
        domain: str,
        limit: int,
        max_retries: int,
        failure_type: str | None = None,
        trigger: str = "",
    ) -> list[FailedOperationData]:
        """Up to `limit` letters of the domain in one step, those first that have been due for longest."""
        now, cause = self._now(), text("trigger", trigger)
        kinds = {} if failure_type is None else {"failure_type": sought("failure_type", failure_type)}
        # Only pending letters are due: to ask for the status as well would lead a planner away from the index.
        due = (Condition("due_at", "<=", now), below(max_retries))
        where = equal(domain=sought("domain", domain), **kinds) + due

        def decide(letter: LetterRecord) -> LetterRecord | None:
            return machine.acquire(letter, now, max_retries, new_record_id(now), cause)

        if size(limit) == 0:
            return []
        return [*map(self._lend, self.store.claim(LETTER, where, decide, by="due_at", limit=size(limit)))]

    def heartbeat(self, id: str, token: str) -> bool:
        """Hold on to the letter; False once it is lost."""
        return self._change(id, lambda letter: machine.heartbeat(letter, self._now(), token)) is not None

    def return_attempt(self, id: str, token: str) -> bool:
        """Give the letter back: nothing was tried, so it costs no attempt. False if it was lost."""
        return self._change(id, lambda letter: machine.return_attempt(letter, self._now(), token)) is not None

    def complete_replay(
        self,
        id: str,
        success: bool,
        resolution_type: str = "",
        note: str = "",
        resolved_by_id: int | str | None = None,
        error_details: dict[str, Any] | None = None,
        *,
        attempt_token: str | None = None,
        retry_at: datetime | None = None,
        known: FailedOperationData | None = None,
    ) -> bool:
        """End the attempt: resolved, or pending again (not before `retry_at`), or requires_review at its cap.

        False, and nothing is changed, unless the letter is replaying, under `attempt_token` if one is given. `known` is
        the letter as it was acquired; it saves reading it again.
        """
        decide = partial(
            machine.complete,
            success=success,
            token=attempt_token,
            resolution_type=text("resolution_type", resolution_type),
            note=text("note", note),
            resolved_by=resolver("resolved_by_id", resolved_by_id),
            details=plain(checked_dict("error_details", error_details), "error_details"),
            retry_at=time("retry_at", retry_at),
        )
        return self.change_read(id, decide, known) is not None

    def release_stale_replaying(self, older_than_minutes: int = 30) -> int:
        """Take letters from holders that gave no sign of life for longer; how many there were."""
        now, moved = self._now(), 0
        before = ago(now, older_than_minutes, MINUTE)
        where = (Condition("touched_at", "<", before),)  # only replaying letters have it

        def decide(letter: LetterRecord) -> LetterRecord | None:
            return machine.release(letter, now, before)

        while released := len(self.store.claim(LETTER, where, decide, by="touched_at", limit=_CHUNK)):
            moved += released
        return moved

    def get_attempts(self, id: str) -> list[ReplayAttempt]:
        """Oldest first; of a letter that was driven very often, the newest."""
        found = self.store.get(LETTER, (id,))[0] if is_id(id) else None
        return [] if found is None else attempts_of(found)


def _begun(letter: LetterRecord, now: int, *, cap: int, force: bool, trigger: str) -> LetterRecord | None:
    if force:
        return machine.redrive(letter, now, new_record_id(now), trigger)
    return machine.acquire(letter, now, cap, new_record_id(now), trigger)
