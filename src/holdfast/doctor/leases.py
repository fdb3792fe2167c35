"""Whether leases last as long as what is done under them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from holdfast.doctor.rules import Finding, found
from holdfast.doctor.works import works_of
from holdfast.guard.describe import describe
from holdfast.workflows.effects import Effect

if TYPE_CHECKING:
    from holdfast.app import Holdfast

BEATS: Final = 3
"""How many heartbeats a lease should have room for: one that is late, and one that is lost."""


def look_at_leases(hold: Holdfast) -> Iterator[Finding]:
    """Those of outbox entries, of letters that are replayed, and of workers."""
    yield from _outbox(hold)
    yield from _letters(hold)
    yield from _workflows(hold)


def _outbox(hold: Holdfast) -> Iterator[Finding]:
    works = works_of(hold)
    for operation in () if works is None else works.operations:
        assert works is not None
        limit, lease = operation.timeout, works.lease
        if limit is not None and limit >= lease:
            limit_s, lease_s = limit.total_seconds(), lease.total_seconds()
            what = f"a call may take {limit_s:g} s, and an entry is leased for {lease_s:g} s"
            fix = "give it less time, or the worker a longer lease: hold.worker(backoff=BackoffPolicy(lease=...))"
            yield found("short-lease", f"operation {operation.name!r}", what, fix)


def _letters(hold: Holdfast) -> Iterator[Finding]:
    stale_s = hold.letters.maintenance.schedule.stale_after_minutes * 60
    for name, guard in sorted(hold.guards.items()):
        longest = describe(guard).max_seconds
        if guard.domain in hold.letters.handlers.domains and stale_s <= longest < math.inf:
            what = f"a replay may take {longest:.4g} s, and one that is silent for {stale_s} s is given to another"
            fix = "give the guard a Timeout(total=...) below that, or raise Schedule.stale_after_minutes"
            yield found("short-lease", f"guard {name!r}", what, fix)


def _workflows(hold: Holdfast) -> Iterator[Finding]:
    flows = hold.workflows
    engine, usual = flows.configs.engine, flows.configs.handler.default_task_timeout_seconds
    ttl, beat = engine.lease_ttl_seconds, engine.lease_heartbeat_seconds
    if ttl < BEATS * beat:
        what = f"a worker's lease of {ttl:g} s has room for {ttl / beat:.2g} heartbeats, one each {beat:g} s"
        fix = f"raise lease_ttl_seconds to {BEATS * beat:g} or more, or beat more often"
        yield found("few-heartbeats", "workflows", what, fix)
    for task in flows.tasks.values():
        limit = task.timeout or usual
        if task.effect is Effect.AT_LEAST_ONCE and limit > ttl:
            what = f"it is at_least_once and may take {limit:g} s, and its worker's lease is {ttl:g} s"
            fix = "declare it idempotent if its callee heeds current_idempotency_key(), or raise lease_ttl_seconds"
            yield found("stall-repeats", f"task {task.name!r}", what, fix)
