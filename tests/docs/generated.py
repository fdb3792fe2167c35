"""Parts of pages that are generated from the code, between `<!-- generated: name -->` and `<!-- end -->`.

`python -m tests.docs.generated` writes them anew; a test compares.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

from holdfast.access import events as access_events
from holdfast.backends.sql.options import SqliteOptions
from holdfast.breakers.events import SharingChanged
from holdfast.core.environment import Configured, settings, variables
from holdfast.doctor.rules import RULES
from holdfast.letters import events as letter_events
from holdfast.machine import breaker, breaker_record, bulk, dead_letter, outbox_entry, saga, workflow
from holdfast.machine.graph import Edges, JoinType, phase_of
from holdfast.outbox import events as outbox_events
from holdfast.telemetry import events as guard_events
from holdfast.telemetry.events import GuardEvent
from holdfast.workflows import events as workflow_events
from holdfast.workflows.config import BulkheadConfig, EngineConfig, HandlerConfig, ResilienceConfig
from holdfast.workflows.tasks.docker import DockerRun
from holdfast.workflows.tasks.http import HttpCall
from holdfast.workflows.tasks.loop import LoopSettings
from holdfast.workflows.tasks.python import PythonCall, PythonScript
from holdfast.workflows.tasks.shell import ShellCommand
from holdfast.workflows.tasks.ssh import SshCommand
from holdfast.workflows.tasks.sub_workflow import SubWorkflowSettings
from holdfast.workflows.tasks.waiting import ApprovalSettings, WaitSettings
from tests.docs.pages import ROOT

_COMMON = ("operation_key", "call_id")
EVENTS: tuple[type[GuardEvent], ...] = (
    *guard_events.CATALOGUE, SharingChanged, *letter_events.CATALOGUE, *outbox_events.CATALOGUE,
    *workflow_events.CATALOGUE, *access_events.CATALOGUE,
)  # fmt: skip

UPSTREAMS = {
    "all are done": Edges(3, open=3),
    "one is done, two run": Edges(3, open=1),
    "two are done, one runs": Edges(3, open=2),
    "one has failed, two run": Edges(3, halted=1),
    "one has failed, two are done": Edges(3, open=2, halted=1),
    "two have failed, one is done": Edges(3, open=1, halted=2),
    "all have failed": Edges(3, halted=3),
    "one was not chosen, two are done": Edges(3, open=2, dead=1),
    "none was chosen": Edges(3, dead=3),
}
TASKS: dict[str, type[Any]] = {
    "`shell`": ShellCommand,
    "`http`": HttpCall,
    "`python`, a function": PythonCall,
    "`python`, a script": PythonScript,
    "`docker`": DockerRun,
    "`ssh`": SshCommand,
    "`wait`": WaitSettings,
    "`approval`": ApprovalSettings,
    "`loop`": LoopSettings,
    "`sub_workflow`": SubWorkflowSettings,
}


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


def workflow_states() -> str:
    steps = (
        (source, target, "")
        for source, targets in workflow.TRANSITIONS.items()
        for target in workflow.WorkflowStatus
        if target in targets
    )
    return _mermaid(_diagram("NOT_STARTED", steps, ends=sorted(workflow.COMPLETE)))


def readiness() -> str:
    """Whether a stage that waits for three others may start, by its join; of N_OF_M, two are wanted."""
    rows = [f"| of three stages before it | {' | '.join(JoinType)} |", "|---|" + "---|" * len(JoinType)]
    for words, edges in UPSTREAMS.items():
        rows.append(f"| {words} | {' | '.join(phase_of(join, 2, edges)[0] for join in JoinType)} |")
    return "\n".join(rows)


def resilience_variables() -> str:
    return _variables((ResilienceConfig, ""), (BulkheadConfig, "BULKHEAD_<TYPE>_"))


def handler_variables() -> str:
    return _variables((HandlerConfig, ""))


def engine_variables() -> str:
    return _variables((EngineConfig, ""))


def sqlite_variables() -> str:
    return _variables((SqliteOptions, ""))


def doctor_rules() -> str:
    rows = ["| rule | name | severity | why |", "|---|---|---|---|"]
    return "\n".join(rows + [f"| `{one.id}` | {one.name} | {one.severity} | {one.why} |" for one in RULES])


def task_settings() -> str:
    rows = ["| task | settings, with their defaults |", "|---|---|"]
    for name, kind in TASKS.items():
        shown = (f"`{one.name}` {_setting_default(one)}".strip() for one in fields(kind))
        rows.append(f"| {name} | {', '.join(shown)} |")
    return "\n".join(rows)


def _variables(*kinds: tuple[type[Configured], str]) -> str:
    rows = ["| after `HOLDFAST_` | field | default | must be |", "|---|---|---|---|"]
    for kind, start in kinds:
        wanted, defaults = dict(settings(kind)), kind()
        for variable, name in variables(kind).items():
            default = getattr(defaults, name)
            field = f"{kind.__name__}.{name}"
            rows.append(f"| `{start}{variable}` | `{field}` | {default} | {wanted[name].wanted} |")
    return "\n".join(rows)


def _setting_default(one: Any) -> str:
    if one.default is not MISSING:
        value = one.default
    elif one.default_factory is not MISSING:
        value = one.default_factory()
    else:
        return "(required)"
    if isinstance(value, range):
        return f"{value.start} to {value.stop - 1}"
    return "" if value is None or value in ("", (), {}) else str(list(value) if isinstance(value, tuple) else value)


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
    "workflow states": (ROOT / "docs/workflows.md", workflow_states),
    "readiness": (ROOT / "docs/workflow-parts.md", readiness),
    "resilience variables": (ROOT / "docs/workflow-parts.md", resilience_variables),
    "handler variables": (ROOT / "docs/workflow-parts.md", handler_variables),
    "engine variables": (ROOT / "docs/workflow-store.md", engine_variables),
    "sqlite variables": (ROOT / "docs/store.md", sqlite_variables),
    "task settings": (ROOT / "docs/workflow-parts.md", task_settings),
    "doctor rules": (ROOT / "docs/doctor.md", doctor_rules),
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
