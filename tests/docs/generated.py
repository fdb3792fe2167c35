"""Parts of pages that are generated from the code, between `<!-- generated: name -->` and `<!-- end -->`.

`python -m tests.docs.generated` writes them anew; a test compares.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path

from holdfast.breakers.events import SharingChanged
from holdfast.letters import events as letter_events
from holdfast.machine import breaker, breaker_record, bulk, dead_letter, outbox_entry, saga
from holdfast.outbox import events as outbox_events
from holdfast.telemetry import events as guard_events
from holdfast.telemetry.events import GuardEvent
from tests.docs.pages import ROOT

_COMMON = ("operation_key", "call_id")
EVENTS: tuple[type[GuardEvent], ...] = (
    *guard_events.CATALOGUE, SharingChanged, *letter_events.CATALOGUE, *outbox_events.CATALOGUE,
)  # fmt: skip


def breaker_states() -> str:
    return _mermaid(breaker.diagram())


def breaker_record_states() -> str:
    steps = ((source, target, act) for (source, act), target in breaker_record.TRANSITIONS.items())
    return _mermaid(_diagram("closed", steps, ends=()))


def letter_states() -> str:
    return _mermaid(dead_letter.diagram())


def bulk_states() -> str:
    steps = ((source, target, verb) for (source, verb), target in bulk.TRANSITIONS.items())
    return _mermaid(_diagram("pending: start", steps, ends=sorted(bulk.FINISHED)))


def entry_states() -> str:
    steps = (
        (source, move.to, move.name)
        for move in outbox_entry.MOVES
        for source in outbox_entry.OutboxStatus
        if source in move.sources
    )
    return _mermaid(_diagram("pending: put", steps, ends=sorted(outbox_entry.TERMINAL)))


def saga_states() -> str:
    steps = (
        (source, target, "")
        for source, targets in saga.TRANSITIONS.items()
        for target in saga.SagaState
        if target in targets
    )
    return _mermaid(_diagram("running: start", steps, ends=sorted(saga.ENDED)))


def step_states() -> str:
    steps = ((source, target, act) for (source, act), target in saga.STEPS.items())
    return _mermaid(_diagram("waiting", steps, ends=()))


def events() -> str:
    rows = ["| event | exported as | fields | severity |", "|---|---|---|---|", *map(_row, EVENTS)]
    return "\n".join(rows)


def _diagram(begin: str, steps: Iterable[tuple[str, str, str]], ends: Iterable[str]) -> str:
    lines = ["stateDiagram-v2", f"    [*] --> {begin}"]
    for source, target, word in steps:
        lines.append(f"    {source} --> {target}" + (f": {word.replace('_', ' ')}" if word else ""))
    lines += [f"    {end} --> [*]" for end in ends]
    return "\n".join(lines) + "\n"


def _mermaid(diagram: str) -> str:
    return f"```mermaid\n{diagram}```"


def _row(event: type[GuardEvent]) -> str:
    fields = ", ".join(f"`{name}`" for name in event.field_names() if name not in _COMMON)
    return f"| `{event.__name__}` | `{event.event_name}` | {fields} | {event.severity_rule} |"


GENERATED: dict[str, tuple[Path, Callable[[], str]]] = {
    "breaker states": (ROOT / "docs/strategies/breaker.md", breaker_states),
    "breaker record states": (ROOT / "docs/shared-breakers.md", breaker_record_states),
    "letter states": (ROOT / "docs/dead-letters.md", letter_states),
    "bulk states": (ROOT / "docs/replay.md", bulk_states),
    "entry states": (ROOT / "docs/outbox.md", entry_states),
    "saga states": (ROOT / "docs/sagas.md", saga_states),
    "step states": (ROOT / "docs/sagas.md", step_states),
    "events": (ROOT / "docs/telemetry.md", events),
}


def part(name: str, page: str) -> re.Match[str]:
    """Where a generated part stands; its group 1 is the text. Raises AssertionError if the page has no such part."""
    found = re.search(rf"(?<=<!-- generated: {name} -->\n)(.*?)(?=<!-- end -->)", page, re.DOTALL)
    assert found is not None, f"there is no part <!-- generated: {name} --> … <!-- end -->"
    return found


if __name__ == "__main__":
    for name, (page, make) in GENERATED.items():
        text = page.read_text()
        old = part(name, text)
        page.write_text(f"{text[: old.start()]}\n{make()}\n\n{text[old.end() :]}")
