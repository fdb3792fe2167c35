"""Parts of pages that are generated from the code, between `<!-- generated: name -->` and `<!-- end -->`.

`python -m tests.docs.generated` writes them anew; a test compares.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from holdfast.machine.breaker import diagram
from holdfast.telemetry.events import CATALOGUE, GuardEvent
from tests.docs.pages import ROOT

_COMMON = ("operation_key", "call_id")


def breaker_states() -> str:
    return f"```mermaid\n{diagram()}```"


def events() -> str:
    rows = ["| event | exported as | fields | severity |", "|---|---|---|---|", *map(_row, CATALOGUE)]
    return "\n".join(rows)


def _row(event: type[GuardEvent]) -> str:
    fields = ", ".join(f"`{name}`" for name in event.field_names() if name not in _COMMON)
    return f"| `{event.__name__}` | `{event.event_name}` | {fields} | {event.severity_rule} |"


GENERATED: dict[str, tuple[Path, Callable[[], str]]] = {
    "breaker states": (ROOT / "docs/strategies/breaker.md", breaker_states),
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
