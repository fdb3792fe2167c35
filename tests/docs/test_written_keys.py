"""The page of parts lists the keys that the engine writes into contexts and outputs: all of them, and no others."""

from __future__ import annotations

import re
from typing import Any, Final

from holdfast import (
    MultiInstanceConfig,
    StageExecution,
    TaskExecution,
    TaskResult,
    Workflow,
    repeat_until,
    task,
    while_loop,
    workflow,
)
from holdfast.testing import WorkflowTestKit
from holdfast.workflows.tasks.builtin import builtin_tasks
from tests.docs.pages import ROOT

GIVEN: Final = {"seconds", "workflow", "input", "all"}
PUBLISHED: Final = {"approved", "user", "comment"}
"""By the approval task, as its own paragraph says."""


@task
def add(number: int) -> int:
    return number + 1


@workflow
def rounds(number: int) -> Any:
    return repeat_until(add, "value > 5", while_loop("value < 3", add, number))


def stage(ref: str, does: str, *before: str, **fields: Any) -> StageExecution:
    tasks = [TaskExecution.create(does, does)]
    return StageExecution.create(does, ref, ref, tasks=tasks, requisite_stage_ref_ids=set(before), **fields)


def written() -> set[str]:
    seen: set[str] = set()

    def look(stage: StageExecution) -> None:
        context: Any = stage.context
        seen.update(context.seen)  # what the stages before it have left

    parts = [
        stage("asks", "asks"),
        stage("waits", "wait", context={"seconds": 5}),
        stage("word", "approval"),
        stage("starts", "sub_workflow", context={"workflow": "rounds", "input": {"number": 1}}),
        stage("some", "noop", context={"all": ["a"]}, mi_config=MultiInstanceConfig(collection_from_context="all")),
        stage("last", "look", "some"),
    ]  # fmt: skip
    with WorkflowTestKit() as kit:
        registry = kit.workflows.registry
        for name, does in builtin_tasks(clock=kit.clock).items():
            registry.register(name, does)
        registry.register("asks", lambda stage: None if "signal" in stage.context else TaskResult.wait_signal("go"))
        registry.register("look", look)
        kit.workflows.add(rounds)
        runs = [kit.start(Workflow.create("shop", "all", parts)), kit.start(rounds, 1)]
        kit.run_until_idle()
        kit.signal(runs[0], "go")
        kit.workflows.approve(runs[0].id)
        for run in runs:
            kit.finish(run)
            for one in kit.workflows.workflow(run.id).stages:
                seen.update(one.context, one.outputs)
    return seen


def test_every_key_that_the_engine_writes_is_listed() -> None:
    page = (ROOT / "docs" / "workflow-parts.md").read_text()
    section = page.partition("### What the engine writes there")[2].partition("\n### ")[0]
    cells = re.findall(r"^\| (`[^|]+) \|", section, re.MULTILINE)
    listed = {key.replace("<ref>", "some") for cell in cells for key in re.findall(r"`([^`]+)`", cell)}
    assert written() - GIVEN - PUBLISHED == listed
