"""The state of everything at a glance: what is open, what waits and since when, and what somebody has to decide."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Final

from holdfast.app import Holdfast
from holdfast.breakers.data import CircuitBreakerStateData, state_data
from holdfast.doctor.examine import examine
from holdfast.doctor.policies import works_of
from holdfast.errors import PolicyError
from holdfast.machine.breaker import CLOSED, HALF_OPEN, OPEN
from holdfast.machine.breaker_record import BREAKER
from holdfast.machine.bulk import BULK, FINISHED
from holdfast.machine.dead_letter import LETTER, PENDING, REPLAYING, REQUIRES_REVIEW, REVIEWING
from holdfast.machine.outbox_entry import CLAIMABLE, WAITING, OutboxStatus
from holdfast.machine.saga import SagaState
from holdfast.store.codec import instant
from holdfast.store.query import Condition, equal
from holdfast.views.plain import plain
from holdfast.workflows.records import WORKFLOW
from holdfast.workflows.roster import WorkerState, workers
from holdfast.workflows.serving import stranded

MOST_NAMED: Final = 50
MOST_DOMAINS: Final = 12
MOST_QUEUES: Final = 20
MOST_STRANDED: Final = 100
LATE_S: Final = 60.0
"""An outbox whose oldest due entry has waited for longer is behind."""
_OPEN_SAGAS: Final = (SagaState.RUNNING, SagaState.COMPENSATING, SagaState.STUCK)
_UNITS: Final = ((86_400, "d"), (3600, "h"), (60, "m"))


def quick_figures(hold: Holdfast) -> dict[str, Any]:
    """What counters and short walks tell, however much there is: letters, breakers, workflows, bulk operations."""
    now = instant(hold.store.now())
    workflows = {status: number for (status,), number in hold.store.tally(WORKFLOW, ("status",)).items()}
    bulk = {state: number for (state,), number in hold.store.tally(BULK, ("state",)).items()}
    return {
        "at": now,
        "letters": _letters(hold, now),
        "breakers": _breakers(hold, now),
        "workflows": {"by_status": workflows},
        "bulk": {"active": sum(number for state, number in bulk.items() if state not in FINISHED)},
    }


def slow_figures(hold: Holdfast) -> dict[str, Any]:
    """What grows with what waits: the outbox and sagas (None where there are none), stranded work, workers."""
    now = instant(hold.store.now())
    seen = Counter(worker.state.value for worker in workers(hold.store))
    return {
        "at": now,
        "outbox": _outbox(hold, now),
        "sagas": _sagas(hold),
        "stranded": len(stranded(hold.store, MOST_STRANDED)),
        "workers": {"alive": seen[WorkerState.BUSY] + seen[WorkerState.IDLE], "by_state": dict(seen)},
    }


def doctor_figures(hold: Holdfast) -> dict[str, Any]:
    """What the doctor has found, by severity, and the worst few of it."""
    findings = examine(hold).findings
    return {
        "by_severity": dict(Counter(finding.rule.severity.value for finding in findings)),
        "worst": [finding.as_dict() for finding in findings[:5]],
    }


def series_values(quick: Mapping[str, Any], slow: Mapping[str, Any]) -> dict[str, float | None]:
    """The numbers that are worth a curve; None for what this store does not have."""
    letters, outbox, sagas = quick["letters"]["by_status"], slow["outbox"], slow["sagas"]
    states, workflows = quick["breakers"]["by_state"], quick["workflows"]["by_status"]
    return {
        "letters_pending": letters.get(PENDING, 0),
        "letters_replaying": letters.get(REPLAYING, 0),
        "letters_review": letters.get(REQUIRES_REVIEW, 0) + letters.get(REVIEWING, 0),
        "breakers_open": states.get(OPEN.value, 0),
        "breakers_half_open": states.get(HALF_OPEN.value, 0),
        "workflows_running": workflows.get("RUNNING", 0),
        "workflows_failed": workflows.get("TERMINAL", 0),
        "workers_alive": slow["workers"]["alive"],
        "outbox_waiting": None if outbox is None else sum(outbox["by_status"][str(one)] for one in WAITING),
        "outbox_abandoned": None if outbox is None else outbox["by_status"][str(OutboxStatus.ABANDONED)],
        "outbox_lag_s": None if outbox is None else outbox["lag_s"],
        "sagas_open": None if sagas is None else sum(sagas["by_state"].values()),
    }


def headline(quick: Mapping[str, Any], slow: Mapping[str, Any], doctor: Mapping[str, Any]) -> dict[str, Any]:
    """One line for all of it. `tone` is calm, attention (somebody should look in today) or trouble (now)."""
    troubles, rest = list(_troubles(quick, slow, doctor)), list(_rest(quick, slow))
    said = [*troubles, *rest]
    if not said:
        return {"tone": "calm", "text": "Everything is closed and drained.", "parts": []}
    text = ", ".join(said[:4]) + (f", and {len(said) - 4} more" if len(said) > 4 else "")
    return {"tone": "trouble" if troubles else "attention", "text": f"{text}.", "parts": said}


def span(seconds: float) -> str:
    """A length of time as one says it: `40 s`, `2 m`, `3 h`, `5 d`."""
    for size, unit in _UNITS:
        if seconds >= size:
            return f"{int(seconds // size)} {unit}"
    return f"{max(0, int(seconds))} s"


def _letters(hold: Holdfast, now: datetime) -> dict[str, Any]:
    by_status: Counter[str] = Counter()
    pending: Counter[str] = Counter()
    for (status, domain), number in hold.store.tally(LETTER, ("status", "domain")).items():
        by_status[status] += number
        if status == PENDING:
            pending[domain] += number
    domains: list[dict[str, Any]] = []
    for domain, number in pending.most_common(MOST_DOMAINS):
        where = equal(domain=domain, status=PENDING)
        oldest = hold.store.page(LETTER, where, by="created_at", limit=1)
        since = instant(oldest[0].created_at) if oldest else None
        domains.append({"domain": domain, "pending": number, "oldest_at": since, "oldest_age_s": _age(since, now)})
    ages = [one["oldest_age_s"] for one in domains if one["oldest_age_s"] is not None]
    return {
        "by_status": dict(by_status),
        "domains": domains,
        "more_domains": max(0, len(pending) - MOST_DOMAINS),
        "oldest_age_s": max(ages, default=None),
    }


def _breakers(hold: Holdfast, now: datetime) -> dict[str, Any]:
    """Those of the store, and those that only this process knows of."""
    store = hold.store
    by_state = Counter({state: number for (state,), number in store.tally(BREAKER, ("state",)).items()})
    found: dict[str, CircuitBreakerStateData] = {}
    questions = (equal(state=OPEN.value), equal(state=HALF_OPEN.value), (Condition("manually_controlled", "=", 1),))
    for where in questions:
        by = "open_order" if where[0].field == "state" else "id"
        found |= {one.id: state_data(one) for one in store.page(BREAKER, where, by=by, limit=MOST_NAMED)}
    items = [
        {
            "name": one.service_name, "state": str(one.state), "since": one.opened_at, "pinned": one.pin_active(now),
            "by": None if one.controlled_by_id is None else str(one.controlled_by_id), "reason": one.control_reason,
            "until": one.manual_override_expires_at, "shared": True,
        }
        for one in found.values() if not one.is_closed or one.pin_active(now)
    ]  # fmt: skip
    for name, state in _own_circuits(hold):
        if name not in found:
            by_state[state] += 1
            items.append({
                "name": name, "state": state, "since": None, "pinned": False, "by": None, "reason": "", "until": None,
                "shared": False,
            })  # fmt: skip
    pinned = sum(1 for one in items if one["pinned"])
    return {"by_state": {str(state): number for state, number in by_state.items()}, "pinned": pinned, "items": items}


def _own_circuits(hold: Holdfast) -> Iterator[tuple[str, str]]:
    """Circuits of this process that are not closed, with their states."""
    for name, guard in hold.guards.items():
        try:
            state = guard.circuit.state
        except PolicyError:
            continue  # a guard without a breaker
        if state is not CLOSED:
            yield name, state.value


def _outbox(hold: Holdfast, now: datetime) -> dict[str, Any] | None:
    """What waits, and what was given up. What has succeeded is not counted: there may be millions of it."""
    works = works_of(hold)
    if works is None:
        return None
    outbox = works.outbox
    by_status = {str(status): 0 for status in OutboxStatus if status is not OutboxStatus.SUCCEEDED}
    queues: Counter[str] = Counter()
    for (queue, status), number in outbox.tally("queue", "status", status=CLAIMABLE).items():
        by_status[str(status)] += number
        queues[str(queue)] += number
    by_status[str(OutboxStatus.ABANDONED)] = sum(outbox.tally(status=OutboxStatus.ABANDONED).values())
    paused = {one.queue: one for one in outbox.paused()}
    due = [at for queue, _ in queues.most_common(MOST_QUEUES) if (at := outbox.oldest_due(queue)) is not None]
    oldest = min(due, default=None)
    return {
        "by_status": by_status,
        "by_queue": dict(queues.most_common(MOST_QUEUES)),
        "oldest_due_at": oldest,
        "lag_s": _age(oldest, now) or 0.0,
        "paused": [plain(one._asdict()) for one in paused.values()],
    }


def _sagas(hold: Holdfast) -> dict[str, Any] | None:
    """Those that are not over."""
    works = works_of(hold)
    if works is None:
        return None
    import sqlalchemy as sa  # a store that has sagas has it

    row = works.tables.sagas.c
    wanted = row.state.in_([str(one) for one in _OPEN_SAGAS])
    counted = sa.select(row.state, sa.func.count()).where(wanted).group_by(row.state)
    found = works.outbox.sessions.run(lambda session: session.execute(counted).all(), reads=True)
    return {"by_state": {str(one): 0 for one in _OPEN_SAGAS} | {str(state): int(number) for state, number in found}}


def _troubles(quick: Mapping[str, Any], slow: Mapping[str, Any], doctor: Mapping[str, Any]) -> Iterator[str]:
    now: datetime = quick["at"]
    shut = [one for one in quick["breakers"]["items"] if one["state"] != CLOSED.value]
    for one in shut[:2]:
        state = one["state"].replace("_", "-")
        age = None if one["since"] is None else span(_age(one["since"], now) or 0.0)
        held = " and held so by an operator" if one["pinned"] else ""
        yield f"{one['name']} " + (f"is {state}" if age is None else f"has been {state} for {age}") + held
    if len(shut) > 2:
        yield f"{_number(len(shut) - 2, 'more breaker is', 'more breakers are')} not closed"
    if slow["sagas"] is not None and (stuck := slow["sagas"]["by_state"][str(SagaState.STUCK)]):
        yield _number(stuck, "saga is stuck", "sagas are stuck")
    if number := slow["stranded"]:
        more = " or more" if number == MOST_STRANDED else ""
        yield f"{number}{more} {'task is' if number == 1 else 'tasks are'} stranded, as no worker can take them"
    if slow["outbox"] is not None and slow["outbox"]["lag_s"] > LATE_S:
        yield f"the outbox is {span(slow['outbox']['lag_s'])} behind"
    if errors := doctor["by_severity"].get("error", 0):
        yield f"the doctor has found {_number(errors, 'error', 'errors')}"


def _rest(quick: Mapping[str, Any], slow: Mapping[str, Any]) -> Iterator[str]:
    letters, outbox = quick["letters"]["by_status"], slow["outbox"]
    if number := letters.get(PENDING, 0):
        yield _number(number, "letter waits", "letters wait")
    if number := letters.get(REQUIRES_REVIEW, 0):
        yield _number(number, "letter needs a person", "letters need a person")
    held = [one["name"] for one in quick["breakers"]["items"] if one["pinned"] and one["state"] == CLOSED.value]
    if held:
        yield f"{held[0]} is held closed by an operator"
    if outbox is not None:
        if number := outbox["by_status"][str(OutboxStatus.ABANDONED)]:
            yield _number(number, "outbox entry was given up", "outbox entries were given up")
        if outbox["paused"]:
            names = ", ".join(one["queue"] for one in outbox["paused"][:3])
            yield f"{_number(len(outbox['paused']), 'outbox queue is', 'outbox queues are')} paused ({names})"


def _number(number: int, one: str, many: str) -> str:
    return f"1 {one}" if number == 1 else f"{number:,} {many}"


def _age(since: datetime | None, now: datetime) -> float | None:
    return None if since is None else max(0.0, (now - since).total_seconds())
