"""The graph as a picture and as text."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from itertools import combinations
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.machine.graph import SkipCause
from holdfast.machine.workflow import WorkflowStatus
from holdfast.workflows.layers import Link, arranged, links_of
from holdfast.workflows.lengths import length
from holdfast.workflows.model import Workflow
from holdfast.workflows.owner import SyntheticStageOwner
from holdfast.workflows.picture import HEIGHT, MARKS, WIDTH, picture
from holdfast.workflows.sketch import MOST_LANES, sketch, sketched
from holdfast.workflows.stage import StageExecution

S = WorkflowStatus
BEGUN = datetime(2026, 1, 1, tzinfo=UTC)
SVG = "{http://www.w3.org/2000/svg}"


def stage(
    ref: str, *before: str, status: WorkflowStatus = S.NOT_STARTED, took: float | None = None, **fields: Any
) -> Any:
    made = StageExecution.create("x", ref, ref, requisite_stage_ref_ids=set(before), **fields)
    vars(made)["status"] = status
    if took is not None:
        made.start_time, made.end_time = BEGUN, BEGUN + timedelta(seconds=took)
    return made


def drawn(*stages: StageExecution, name: str = "order") -> Workflow:
    return Workflow(name=name, stages=list(stages))


def diamond() -> Workflow:
    return drawn(
        stage("a", status=S.SUCCEEDED, took=0.12), stage("b", "a", status=S.RUNNING),
        stage("c", "a", status=S.TERMINAL, took=75), stage("d", "b", "c"),
    )  # fmt: skip


def test_a_picture_is_well_formed_and_names_every_stage_with_its_state_and_time() -> None:
    workflow = diamond()
    workflow.stage("b").start_time = BEGUN
    root = ElementTree.fromstring(picture(workflow, BEGUN + timedelta(seconds=3)))
    texts = [one.text for one in root.iter(f"{SVG}text")]
    assert {"a", "✓ SUCCEEDED · 120 ms", "● RUNNING · 3.0 s", "✗ TERMINAL · 1 min 15 s", "○ NOT_STARTED"} <= {*texts}
    assert len([one for one in root.iter(f"{SVG}path") if "edge" in one.get("class", "")]) == 4


def test_what_is_said_above_the_graph_fits_into_the_picture_of_one_stage() -> None:
    workflow = drawn(stage("a", status=S.SUCCEEDED, took=753))
    workflow.id, workflow.start_time, workflow.end_time = (
        "06607152cb8af1308a379b17",
        BEGUN,
        BEGUN + timedelta(minutes=12),
    )
    root = ElementTree.fromstring(picture(workflow))
    (facts,) = [one.text for one in root.iter(f"{SVG}text") if workflow.id in (one.text or "")]
    assert float(root.get("width", 0)) >= 24 + 7 * len(facts or "") + 24


def test_a_line_that_is_wider_than_its_box_is_squeezed_into_it() -> None:
    wide = drawn(stage("W" * 30, status=S.FAILED_CONTINUE, took=753), stage("a", status=S.SUCCEEDED, took=753))
    root = ElementTree.fromstring(picture(wide))
    squeezed = {one.text: float(one.get("textLength", 0)) for one in root.iter(f"{SVG}text") if one.get("textLength")}
    assert squeezed == {"W" * 20 + "…": WIDTH - 22, "! FAILED_CONTINUE · 12 min 33 s": WIDTH - 22}


def test_what_users_name_things_cannot_break_the_picture() -> None:
    nasty = '<script>"&\x00\x1b\ud800</svg>'
    root = ElementTree.fromstring(picture(drawn(stage(nasty, status=S.RUNNING), name=nasty)))
    assert [one.tag for one in root.iter() if "script" in one.tag] == []
    assert "<script>" in (root.findtext(f"{SVG}title") or "")


def test_it_has_colours_for_light_and_dark_pages_that_differ() -> None:
    style = ElementTree.fromstring(picture(diamond())).findtext(f"{SVG}style") or ""
    light, dark = style.split("@media (prefers-color-scheme:dark)")
    colours = [dict(re.findall(r"\.(\w+)\{fill:(#\w+)\}", part)) for part in (light, dark)]
    assert colours[0].keys() == colours[1].keys() >= {"paper", "ink", "good", "bad"}
    for palette in colours:
        for name in ("ink", "muted", "good", "busy", "wait", "warn", "bad"):
            assert _contrast(palette[name], palette["box"]) >= 4.5, name


def _contrast(one: str, other: str) -> float:
    """As WCAG has it; 4.5 is enough to read small text."""

    def light(colour: str) -> float:
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        red, green, blue = (part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    high, low = sorted((light(one), light(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_every_state_has_a_sign_of_its_own() -> None:
    assert len({MARKS[status] for status in WorkflowStatus}) == len(WorkflowStatus)


def test_a_way_that_was_not_taken_is_drawn_as_dead() -> None:
    workflow = drawn(stage("a", status=S.SUCCEEDED), stage("b", "a", status=S.SKIPPED, skip_cause=SkipCause.PRUNED))
    assert 'class="edge of-line dead"' in picture(workflow)


def test_parts_of_a_stage_stand_between_what_it_waits_for_and_what_waits_for_it() -> None:
    whole = stage("whole", "before")
    stages = [
        stage("before"), whole, stage("next", "whole"),
        stage("first", parent_stage_id=whole.id, synthetic_stage_owner=SyntheticStageOwner.STAGE_BEFORE),
        stage("last", parent_stage_id=whole.id, synthetic_stage_owner=SyntheticStageOwner.STAGE_AFTER),
    ]  # fmt: skip
    places = arranged([one.ref_id for one in stages], links_of(stages)).places
    assert [places[ref].layer for ref in ("before", "first", "whole", "last", "next")] == [0, 1, 2, 3, 4]


@st.composite
def graphs(draw: st.DrawFn) -> dict[str, list[str]]:
    refs = [f"s{number}" for number in range(draw(st.integers(1, 14)))]
    return {
        ref: sorted(draw(st.sets(st.sampled_from(refs[:at]), max_size=4))) if at else [] for at, ref in enumerate(refs)
    }


@given(graphs())
def test_no_two_boxes_touch_and_every_line_leads_onwards(requires: dict[str, list[str]]) -> None:
    root = ElementTree.fromstring(picture(drawn(*(stage(ref, *before) for ref, before in requires.items()))))
    boxes = [one for one in root.iter(f"{SVG}rect") if "box" in one.get("class", "")]
    corners = [(float(one.get("x", 0)), float(one.get("y", 0))) for one in boxes]
    assert len(corners) == len(requires)
    for (x, y), (u, v) in combinations(corners, 2):
        assert abs(x - u) >= WIDTH or abs(y - v) > HEIGHT
    width, height = float(root.get("width", 0)), float(root.get("height", 0))
    assert all(0 <= x <= width - WIDTH and 0 <= y <= height - HEIGHT for x, y in corners)
    for ref, before in requires.items():
        for source in before:
            layout = arranged(requires, [Link(one, to) for to, many in requires.items() for one in many])
            layers = [point.layer for point in layout.routes[source, ref]]
            assert layers == list(range(layers[0], layers[-1] + 1))


def test_few_lines_cross_where_none_has_to() -> None:
    # Two chains whose stages are defined crosswise.
    links = [Link("a1", "b1"), Link("a2", "b2"), Link("b1", "c1"), Link("b2", "c2")]
    places = arranged(["a1", "a2", "b2", "b1", "c1", "c2"], links).places
    above = [places[f"{layer}1"].row < places[f"{layer}2"].row for layer in "abc"]
    assert len({*above}) == 1


def test_a_large_fan_and_a_long_ladder_are_drawn_without_delay() -> None:
    fan = [stage("in"), *(stage(f"m{n}", "in") for n in range(3000)), stage("out", *(f"m{n}" for n in range(3000)))]
    assert picture(drawn(*fan)).count("data-stage") == 3002
    ladder = [stage("s0"), *(stage(f"s{n}", "s0", f"s{n - 1}") for n in range(1, 400))]
    assert picture(drawn(*ladder)).count("data-stage") == 400


def test_the_text_form_draws_forks_joins_and_lines_that_pass_behind() -> None:
    workflow = drawn(
        stage("a", status=S.SUCCEEDED, took=2), stage("b", "a", status=S.RUNNING), stage("c", "a"), stage("d", "b"),
        stage("e", "c", "d"), stage("f", "a", "e"),
    )  # fmt: skip
    assert sketch(workflow).splitlines() == [
        "✓      a  SUCCEEDED        2.0 s",
        "├─┬─╮",
        "● │ │  b  RUNNING",
        "○ │ │  d  NOT_STARTED",
        "│ ○ │  c  NOT_STARTED",
        "├─╯ │",
        "○   │  e  NOT_STARTED",
        "╰───┤",
        "    ○  f  NOT_STARTED",
    ]


def test_it_can_be_drawn_in_ascii() -> None:
    assert sketch(diamond(), plain=True).isascii()


@given(graphs())
def test_each_stage_has_a_line_below_those_that_it_waits_for(requires: dict[str, list[str]]) -> None:
    lines = sketched(drawn(*(stage(ref, *before) for ref, before in requires.items())))
    order = [line.stage.ref_id for line in lines if line.stage is not None]
    assert sorted(order) == sorted(requires)
    for ref, before in requires.items():
        assert all(order.index(one) < order.index(ref) for one in before)


def test_too_many_lines_side_by_side_are_left_out() -> None:
    wide = [stage("in"), *(stage(f"m{n}", "in") for n in range(MOST_LANES + 1))]
    assert {line.graph for line in sketched(drawn(*wide))} == {"○"}


def test_a_workflow_without_stages_can_be_drawn() -> None:
    assert ElementTree.fromstring(picture(drawn())).tag == f"{SVG}svg"
    assert sketched(drawn()) == []


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0, "0 ms"), (0.9994, "999 ms"), (0.9996, "1.0 s"), (59.96, "1 min 0 s"), (125, "2 min 5 s"),
     (3599.7, "1 h 0 min"), (11_040, "3 h 4 min"), (183_600, "2 d 3 h"), (-1, "0 ms")],
)  # fmt: skip
def test_lengths_are_said_in_the_units_that_matter(seconds: float, said: str) -> None:
    assert length(seconds) == said
