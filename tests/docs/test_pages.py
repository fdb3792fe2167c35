"""The pages say what the code says: outlines, defaults, generated parts, names and links."""

from __future__ import annotations

import inspect
import re
from enum import Enum
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import task, wait_signal, workflow
from holdfast.testing import WorkflowTestKit
from holdfast.workflows.sketch import sketched
from tests.docs.generated import GENERATED, part
from tests.docs.pages import PAGES, ROOT, blocks_of

DOCS = ROOT / "docs"
STRATEGIES = sorted(DOCS.glob("strategies/*.md"))
DECISIONS = sorted(DOCS.glob("decisions/*.md"))
DURABLE = [
    DOCS / f"{name}.md"
    for name in (
        "store", "dead-letters", "replay", "shared-breakers", "outbox", "sagas", "erasure", "publishers", "audit",
        "workers", "workflows", "workflow-cleanup", "access",
    )
]  # fmt: skip
OUTLINE = ["When to use", "Example", "Defaults", "What it guarantees", "Telemetry", "Anti-patterns"]
# Where a default is not a value that one could write down.
SHOWN_AS = {
    "Guard": {"clock": "the system's", "rng": "random.random", "*policies": "none"},
    "Holdfast": {"**store_options": "none"},
    "MemoryStore": {"clock": "the system's"},
    "Sharing": {"clock": "the system's"},
    "BatchPolicy": {"caps": "{}"},
    "Schedule": {"service_levels": "{}"},
    "Operation": {"labels": "{}", "events": 'StepEvents.of("operation")'},
    "LocalStep": {"anonymize": "{}", "categories": "{}"},
    "SagaRunner": {"rng": "random.random"},
    "Sagas": {"*definitions": "none"},
    "WorkflowWorker": {"clock": "the system's"},
    "ResilienceConfig": {"bulkheads": "see above"},
    "WorkflowCircuitFactory": {"clock": "the system's"},
    "TaskBulkheadManager": {"clock": "the system's"},
    "Access": {"clock": "the system's", "session_life": "12 hours"},
}
# What has a table and is not among the public names of `holdfast`.
ELSEWHERE = {
    "SqlStore": "holdfast.backends.sql.store",
    "RedisStore": "holdfast.backends.redis.store",
    "TaskFunction": "holdfast.workflows.functions",
    "Verification": "holdfast.workflows.verification",
    "Access": "holdfast.access.access",
    "Limits": "holdfast.server.shields",
}
RULES_DEFAULT = "count(5, window=60)"
_NOTE = re.compile(r"\.note\(([^,)]+)")
_TABLE = re.compile(r"^\| (\w+) \| Default \| Meaning \|\n\|[-|]+\n((?:\|.*\n?)+)", re.MULTILINE)

by_name = pytest.mark.parametrize("page", [*STRATEGIES, DOCS / "failover.md", *DURABLE], ids=lambda page: page.stem)


def prose(page: Path) -> str:
    """The page without its blocks of code."""
    return re.sub(r"^( *)```.*?^\1```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)


def headings(page: Path, level: int = 2) -> list[str]:
    return re.findall(rf"^{'#' * level} (.+)$", prose(page), re.MULTILINE)


@by_name
def test_a_page_about_a_strategy_or_a_durable_concept_has_the_common_outline(page):
    assert headings(page) == OUTLINE


def test_a_decision_says_context_decision_and_consequences():
    for page in DECISIONS:
        assert headings(page) == ["Context", "Decision", "Consequences"], page.name
        number = int(page.name[:4])
        assert headings(page, 1)[0].startswith(f"{number}. "), page.name
    assert [int(page.name[:4]) for page in DECISIONS] == list(range(1, len(DECISIONS) + 1))


def tables_of_defaults() -> dict[str, dict[str, str]]:
    """Every table `| Name | Default | Meaning |` of the docs: the shown default of each parameter."""
    found: dict[str, dict[str, str]] = {}
    for page in PAGES:
        for head, body in _TABLE.findall(page.read_text()):
            assert head not in found, f"{head} has two tables"
            rows = [re.split(r" *(?<!\\)\| *", row)[1:3] for row in body.splitlines()]
            found[head] = {name.strip("`"): default.strip("`") for name, default in rows}
    return found


def defaults_of(named: str) -> dict[str, str]:
    """The parameters of a public class or function, and their defaults as the pages show them."""
    shown = {}
    home = import_module(ELSEWHERE.get(named, "holdfast"))
    for p in inspect.signature(getattr(home, named)).parameters.values():
        name = {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "") + p.name
        shown[name] = SHOWN_AS.get(named, {}).get(name) or _default(p)
    return shown


def _default(p: inspect.Parameter) -> str:
    default: Any = p.default
    if p.kind is p.VAR_POSITIONAL:
        return RULES_DEFAULT
    if default is p.empty:
        return "required"
    if isinstance(default, Enum):
        default = default.value
    if isinstance(default, str):
        return f'"{default}"'
    return "not given" if type(default) is object else repr(default)


@pytest.mark.parametrize("named", tables_of_defaults())
def test_a_table_of_defaults_is_what_the_code_has(named):
    assert tables_of_defaults()[named] == defaults_of(named)


@by_name
def test_a_page_with_the_common_outline_has_a_table_of_defaults(page):
    assert _TABLE.search(page.read_text())


def test_the_rule_of_a_breaker_without_one_is_the_one_that_is_shown():
    assert [str(rule) for rule in holdfast.Breaker().rules] == [RULES_DEFAULT]


@pytest.mark.parametrize("name", GENERATED)
def test_a_generated_part_is_up_to_date(name):
    page, make = GENERATED[name]
    assert part(name, page.read_text())[1].strip() == make(), "run: python -m tests.docs.generated"


def test_every_state_diagram_is_a_generated_one():
    made = {name: make() for name, (_, make) in GENERATED.items() if name.endswith("states")}
    for page in DOCS.rglob("*.md"):
        for block in blocks_of(page):
            if block.language == "mermaid" and block.text.startswith("stateDiagram"):
                assert f"```mermaid\n{block.text}\n```" in made.values(), page.name


def test_every_public_name_is_on_a_page():
    words = set(re.findall(r"\w+", "\n".join(page.read_text() for page in PAGES)))
    assert not sorted(set(holdfast.__all__) - words)


def test_everything_that_the_log_of_a_workflow_can_say_is_on_its_page():
    noted = [call for path in (*_files("machine"), *_files("workflows")) for call in _NOTE.findall(path.read_text())]
    said = {word for call in noted for word in re.findall(r'"(\w+)"', call)}
    assert len(said) > 10
    assert not said - set(re.findall(r"`(\w+)`", (DOCS / "workflows.md").read_text()))


def test_the_names_of_the_seeds_are_where_the_page_says():
    rows = re.findall(r"^\| (`.+?`) \| `(\w+/\w+\.py)` \|", (DOCS / "seed-names.md").read_text(), re.MULTILINE)
    assert len(rows) > 30
    for names, home in rows:
        for name in re.findall(r"`(\w+)`", names):
            assert name in holdfast.__all__, name
            assert re.search(rf"\b{name}\b", (ROOT / "src/holdfast" / home).read_text()), f"{name} in {home}"


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as both GitHub and mkdocs make them."""
    plain = [re.sub(r"[^\w\- ]", "", text.lower()) for level in (1, 2, 3) for text in headings(page, level)]
    return {text.replace(" ", "-") for text in plain}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_pages_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        to = (page.parent / path).resolve() if path else page
        assert to.exists(), f"{page.name} links to {target}"
        if anchor:
            assert anchor in anchors(to), f"{page.name} links to {target}"


def test_the_tree_in_the_architecture_is_the_tree():
    tree = next(block.text for block in blocks_of(ROOT / "ARCHITECTURE.md") if "src/holdfast/" in block.text)
    named = set(re.findall(r"\w+\.py", tree))
    there = {path.name for path in (ROOT / "src/holdfast").rglob("*.py")}
    assert not named - there
    packages = {path.name for path in (ROOT / "src/holdfast").iterdir() if (path / "__init__.py").exists()}
    assert packages == set(re.findall(r"^  (\w+)/", tree, re.MULTILINE))
    shown = {path for path in there if path not in ("__init__.py", "__main__.py")}
    # Told apart by their own names: the parts of the demo, and a file for each revision of the schema.
    unnamed = {
        path.name for folder in ("demo", "demo/twice", "backends/migrations/versions") for path in _files(folder)
    }
    assert shown - unnamed <= named


def _files(folder: str) -> list[Path]:
    return sorted((ROOT / "src/holdfast" / folder).glob("*.py"))


def test_the_tutorial_of_workflows_draws_the_graph_that_its_reader_will_see():
    page = (DOCS / "workflow-tutorial.md").read_text()
    shown = page.partition("$ holdfast workflow graph")[2].partition("```")[0].splitlines()[2:]

    @task
    def book_flight(trip):
        return trip

    @task
    def send_ticket(flight, address):
        return flight

    @workflow
    def approved_trip(trip):
        word = wait_signal("approved", timeout=3 * 86400)
        return send_ticket(book_flight(trip, after=word), word["by"])

    with WorkflowTestKit() as kit:
        run = kit.start(approved_trip, "Oslo")
        kit.signal(run, "approved", {"by": "bob"})
        kit.finish(run)
        drawn = [line.graph.rstrip() for line in sketched(kit.workflows.workflow(run.id))]
    assert [re.split(r"\s+(?=[a-z])", line)[0].rstrip() for line in shown] == drawn


def test_the_comparison_says_of_holdfast_what_the_readme_says():
    assert "| **Web console**" in (ROOT / "README.md").read_text()
    assert re.search(r"^\| web console \| \[yes\]", (DOCS / "workflows-compared.md").read_text(), re.MULTILINE)
