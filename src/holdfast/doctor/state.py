"""What waits in the store for somebody to decide."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from holdfast.doctor.rules import Finding, found
from holdfast.doctor.works import works_of
from holdfast.machine.outbox_entry import OutboxStatus
from holdfast.machine.workflow import WorkflowStatus
from holdfast.store.codec import instant

if TYPE_CHECKING:
    from holdfast.app import Holdfast

NEARLY_FULL: Final = 0.9


def look_at_state(hold: Holdfast) -> Iterator[Finding]:
    """Letters, entries, sagas and workflows."""
    yield from _letters(hold)
    works = works_of(hold)
    if works is not None:
        abandoned = works.outbox.status_counts()[OutboxStatus.ABANDONED]
        if abandoned:
            fix = "see holdfast outbox list --status abandoned, then requeue or prune them"
            yield found("abandoned-entries", "outbox", f"{_number(abandoned, 'entry is', 'entries are')} given up", fix)
        stuck = works.sagas.find(state="stuck", limit=100)
        if stuck:
            told = "100 sagas or more are" if len(stuck) == 100 else _number(len(stuck), "saga is", "sagas are")
            fix = "see holdfast saga list --state stuck, and resolve a step"
            yield found("stuck-sagas", "sagas", f"{told} stuck", fix)
    failed = hold.workflows.counts().get(WorkflowStatus.TERMINAL, 0)
    if failed:
        fix = "see holdfast workflow list --status TERMINAL, then retry or leave them"
        yield found("failed-workflows", "workflows", f"{_number(failed, 'workflow has', 'workflows have')} failed", fix)

    stranded = hold.workflows.stranded(limit=1)
    if stranded:
        fix = "see holdfast workflow stranded, and start a worker that knows it"
        yield found("stranded-workflows", f"workflow {stranded[0].workflow_id}", stranded[0].reason, fix)
    dead = hold.workflows.dead.count()
    if dead:
        fix = "see holdfast workflow dead list, then replay or discard them"
        yield found("dead-items", "workflows", f"{_number(dead, 'item is', 'items are')} dead", fix)


def _letters(hold: Holdfast) -> Iterator[Finding]:
    letters, handlers = hold.letters, hold.letters.handlers.domains
    now = instant(hold.store.now())
    pending: dict[str, int] = letters.get_statistics()["pending_by_domain"]
    for domain, number in sorted(pending.items()):
        where = f"letters of {domain!r}"
        is_program = handlers or hold.guards  # and not a mere look at the store
        if is_program and domain not in handlers and not _is_replayed(hold, domain):
            what = f"{_number(number, 'letter is', 'letters are')} waiting that nothing here can replay"
            fix = "register their functions or a handler, or resolve them: holdfast letters resolve"
            yield found("orphaned-letters", where, what, fix)
        level = letters.maintenance.schedule.service_level(domain)
        if letters.find(status="pending", domain=domain, created_to=now - level, limit=1):
            what = f"the oldest has waited for longer than {_span(level)}"
            yield found("late-letters", where, what, f"see holdfast letters list --domain {domain}")
    box = letters.box
    if box.spool:
        what = f"{box.spool.path} holds failures that are not in the store"
        yield found("spooled-letters", "spool", what, "run a worker, which takes them in")
    here, room = letters.count_all(), box.room.capacity
    if here >= NEARLY_FULL * room.total:
        what = f"{here:,} of {room.total:,} letters"
        yield found(
            "full-letters", "letters", what, f"purge what is done, or raise Capacity.total; now: {room.overflow}"
        )


def _is_replayed(hold: Holdfast, domain: str) -> bool:
    """Whether something replays the newest letter of a domain that nothing is registered for: of workflows, any."""
    newest = hold.letters.find(status="pending", domain=domain, limit=1)
    return all(hold.letters.handlers.find(letter) is not None for letter in newest)


def _number(number: int, one: str, many: str) -> str:
    return f"1 {one}" if number == 1 else f"{number:,} {many}"


def _span(level: timedelta) -> str:
    return f"{level.total_seconds() / 3600:g} h"
