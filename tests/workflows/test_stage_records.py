"""The state of a stage as it is stored."""

from __future__ import annotations

import json
from typing import Any

import pytest

from holdfast.machine.graph import Edges
from holdfast.machine.run import Part, StagePlan, StageState, TaskPlan, Wait
from holdfast.machine.workflow import WorkflowStatus
from holdfast.workflows.records import StageRecord, stage_state, stage_text

PLAN = StagePlan(ref="one", tasks=(TaskPlan(name="a", type="a"), TaskPlan(name="b", type="b")), before=("x", "y"))
SELDOM: list[dict[str, Any]] = [
    {},
    {"activated": ["two"]},
    {"bad": 1, "good": 2, "spawned": 4},
    {"child": "0123"},
    {"children_left": 3},
    {"finalizers": 1},
    {"flawed": True},
    {"jumps": 2},
    {"keyed": 1},
    {"reason": 'it said "no"\n'},
    {"resumes": "0123"},
    {"skip_cause": "jumped"},
    {"told": ["two", "three"]},
    {"unwanted": True},
    {"at_will": True},
    {"wait": Wait("go", 1.5, True, WorkflowStatus.SKIPPED)},
    {"wait": Wait(None, None)},
]


def made(seldom: dict[str, Any]) -> StageState:
    stage = StageState(PLAN)
    stage.status, stage.part, stage.at = WorkflowStatus.RUNNING, Part.TASKS, 1
    stage.edges, stage.fired = Edges(2, 1, 0, 1), 1
    stage.tasks[0].status, stage.tasks[0].attempt = WorkflowStatus.SUCCEEDED, 2
    stage.tasks[0].started_at, stage.tasks[0].ended_at = 17, 18
    stage.tasks[1].error = {"type": "ValueError", "message": 'a "quoted" \\ one'}
    for name, value in seldom.items():
        setattr(stage, name, value)
    return stage


def everything(stage: StageState) -> dict[str, Any]:
    facts = {name: getattr(stage, name) for name in StageState.__slots__ if name not in ("plan", "tasks")}
    return facts | {"tasks": [{name: getattr(one, name) for name in one.__slots__} for one in stage.tasks]}


@pytest.mark.parametrize("seldom", SELDOM, ids=lambda seldom: ",".join(seldom) or "nothing")
def test_a_stage_is_read_as_it_was_stored(seldom: dict[str, Any]) -> None:
    stage = made(seldom)
    record = StageRecord("w.one", 1, None, "w", "one", "RUNNING", 1, None, None, stage_text(stage), "{}", "{}")
    assert everything(stage_state(PLAN, record)) == everything(stage)


def test_what_most_stages_have_is_stored_like_what_few_have() -> None:
    usual, seldom = json.loads(stage_text(made({}))), json.loads(stage_text(made({"jumps": 1})))
    assert seldom == {**usual, "jumps": 1}
