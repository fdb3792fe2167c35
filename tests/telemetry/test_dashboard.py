"""The dashboard, the alarms and the runbook speak of metrics that there are, and of each other."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry

from holdfast import Breaker, Holdfast, Hub, consecutive
from holdfast.core.outcome import OutcomeKind
from holdfast.readings import readings
from holdfast.telemetry.events import CallCompleted, CircuitStateChanged, LoadShed
from holdfast.telemetry.measure import MeasuredEvent
from holdfast.telemetry.prometheus import PrometheusCollector
from tests.docs.generated import EVENTS
from tests.docs.pages import ROOT

ASSETS = ROOT / "docs" / "assets"
DASHBOARD: dict[str, Any] = json.loads((ASSETS / "grafana-holdfast.json").read_text())
ALERTS: list[dict[str, Any]] = [
    rule for group in yaml.safe_load((ASSETS / "holdfast-alerts.yml").read_text())["groups"] for rule in group["rules"]
]
RUNBOOK = (ROOT / "docs" / "runbook.md").read_text()
SECTIONS = ["What it means", "What users feel", "What to look at", "What to do", "What not to do"]
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
_NAME = re.compile(r"\b(?:guard|letter|breaker|outbox|saga|workflow|store|audit)_[a-z_]+\b")
_SELECTED = re.compile(r"([a-z_]+)\{([^}]*)\}")
_GROUPED = re.compile(r"\b(?:by|on) \(([^)]*)\)")
_ADDED = {"job", "instance"}
"""What a scrape adds to every metric."""


def expressions() -> Iterator[tuple[str, str]]:
    """Where a query stands, and the query."""
    for rule in ALERTS:
        yield rule["alert"], rule["expr"]
    for panel in PANELS:
        for target in panel["targets"]:
            yield panel["title"], target["expr"]
    for variable in DASHBOARD["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["name"], variable["definition"]


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """Every metric that a process exports, under the name of each of its samples, and its labels."""
    path = tmp_path_factory.mktemp("exported")
    found: dict[str, set[str]] = {}
    with Holdfast(f"sqlite:///{path}/h.db", telemetry=Hub(), background=False, spool=path / "spool") as hold:
        registry, told = CollectorRegistry(), readings(hold)
        PrometheusCollector(hub=hold.telemetry, registry=registry, readings=told)
        hold.guard("stock", Breaker(consecutive(1)))
        hold.telemetry.emit(CallCompleted("stock", "c", 0.1, OutcomeKind.SUCCESS))
        hold.telemetry.emit(LoadShed("stock", "c", "stock", "circuit_open"))
        hold.telemetry.emit(CircuitStateChanged("stock", "c", "stock", "closed", "open"))
        for kind in EVENTS:
            if issubclass(kind, MeasuredEvent):
                hold.telemetry.emit(any_event(kind))
        labels = {one.name.replace(".", "_"): set(one.labels) for one in told}
        for family in registry.collect():
            suffixes = {"counter": ["_total"], "histogram": ["_bucket", "_sum", "_count"]}.get(family.type, [""])
            for suffix in suffixes:
                found[family.name + suffix] = labels.get(family.name, set())
            for sample in family.samples:
                found[sample.name] = set(sample.labels)
    return found


def any_event(kind: type[MeasuredEvent]) -> MeasuredEvent:
    """An event of that kind, with something in each field."""
    given: dict[str, Any] = {}
    for name, one in inspect.signature(kind).parameters.items():
        if one.default is one.empty:
            given[name] = 0.5 if name.endswith("_s") else 1 if name in ("size", "attempts", "attempt") else "x"
    return kind(**given)


@pytest.mark.parametrize(("where", "query"), list(expressions()))
def test_a_query_asks_for_metrics_and_labels_that_are_exported(
    where: str, query: str, exported: dict[str, set[str]]
) -> None:
    names = set(_NAME.findall(re.sub(r'"[^"]*"', "", query)))
    assert names, f"{where}: no metric in {query}"
    assert not names - set(exported), where
    for name, selectors in _SELECTED.findall(query):
        asked = set(re.findall(r"(\w+)\s*[=!]", selectors))
        assert not asked - exported[name] - _ADDED, f"{where}: {name} has not {asked}"
    grouped = {label.strip() for one in _GROUPED.findall(query) for label in one.split(",")}
    known = set[str]().union(*(exported[name] for name in names)) | _ADDED
    assert not grouped - known, where


@pytest.mark.parametrize(
    ("where", "query"), [one for one in expressions() if "unless" in one[1] and "offset" in one[1]]
)
def test_a_counter_that_has_just_appeared_alarms_only_if_it_has_counted_something(where: str, query: str) -> None:
    assert re.search(r"> 0\s+unless", query), f"{where}: 0 is a value too in {query}"


def test_every_reading_is_on_the_dashboard(exported: dict[str, set[str]], tmp_path: Path) -> None:
    asked = {name for _, query in expressions() for name in _NAME.findall(query)}
    with Holdfast(f"sqlite:///{tmp_path}/h.db", telemetry=Hub(), background=False) as hold:
        told = {one.name.replace(".", "_") + ("_total" if one.grows else "") for one in readings(hold)}
    assert not told - asked - {"letter_ingested_total"}


def test_the_dashboard_can_be_imported() -> None:
    assert DASHBOARD["id"] is None
    assert DASHBOARD["schemaVersion"] >= 39
    assert DASHBOARD["templating"]["list"][0]["type"] == "datasource"
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids))
    for panel in PANELS:
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        assert panel["description"]
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24


def test_no_two_panels_lie_on_each_other() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {(x, y) for x in range(place["x"], place["x"] + place["w"])
                 for y in range(place["y"], place["y"] + place["h"])}  # fmt: skip
        assert not cells & taken, panel["title"]
        taken |= cells


def test_an_alarm_has_a_severity_a_summary_and_a_section_in_the_runbook() -> None:
    sections = re.findall(r"^## (Holdfast\w+)$", RUNBOOK, re.MULTILINE)
    assert sections == [rule["alert"] for rule in ALERTS]
    for rule in ALERTS:
        assert rule["labels"]["severity"] in ("page", "ticket")
        assert rule["annotations"]["summary"]
        assert rule["annotations"]["runbook"] == f"runbook.md#{rule['alert'].lower()}"


@pytest.mark.parametrize("name", [rule["alert"] for rule in ALERTS])
def test_a_section_of_the_runbook_answers_five_questions(name: str) -> None:
    section = re.split(r"^## ", RUNBOOK.partition(f"\n## {name}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]
    assert re.findall(r"^\*\*(.+?)\.\*\* ", section, re.MULTILINE) == SECTIONS
    assert "`holdfast " in re.sub(r"\s+", " ", section)
