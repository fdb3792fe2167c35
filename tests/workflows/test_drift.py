"""Drift: a workflow that was started with another configuration is told apart, by policy."""

from __future__ import annotations

import logging
from typing import Any, Literal

import pytest

from holdfast.errors import ConfigurationError
from holdfast.machine.workflow import WorkflowStatus
from holdfast.store.port import Store
from holdfast.testing.clock import ManualClock
from holdfast.workflows.config import EngineConfig, HandlerConfig
from holdfast.workflows.fingerprint import Drift, config_drift
from holdfast.workflows.functions import task, workflow
from holdfast.workflows.messages import ResumeStage
from holdfast.workflows.records import CONFIG
from holdfast.workflows.recovery import RecoveryStatus
from holdfast.workflows.resilience import ResilienceConfig
from holdfast.workflows.workflows import Workflows
from tests.workflows.journal import Journal, stage, start
from tests.workflows.test_recovery import lose_items

S = WorkflowStatus
MORE = HandlerConfig(max_workers=3)


@task
def one() -> int:
    return 1


@workflow
def single() -> Any:
    return one()


def told(flows: Workflows, id: str) -> list[Any]:
    return [entry.facts["fields"] for entry in flows.log(id) if entry.type == "config_drifted"]


def again(store: Store, clock: ManualClock, *configs: Any) -> Workflows:
    flows = Workflows(store, clock=clock, config=configs)
    Journal(flows)
    return flows


def test_a_workflow_remembers_what_the_engine_was_told_without_secrets(store: Store, clock: ManualClock) -> None:
    secret = ResilienceConfig(database_url="postgresql://ann:hunter2@db/shop")
    flows = again(store, clock, secret)
    for run in (start(flows, stage("a")), flows.start(single)):
        found = flows.workflow(run.id)
        assert found.config_version == flows.configs.fingerprint
        assert found.config_values == flows.configs.values
        assert "hunter2" not in str(found.config_values)
        assert "hunter2" not in store.page(CONFIG)[0].fields
    assert len(store.page(CONFIG)) == 1  # once for all workflows


def test_what_has_changed_since_a_workflow_started_is_named(store: Store, clock: ManualClock) -> None:
    run = start(again(store, clock), stage("a"))
    found = again(store, clock, MORE).workflow(run.id)
    assert config_drift(found, MORE) == {"max_workers": Drift(10, 3)}
    assert config_drift(found, HandlerConfig(), EngineConfig()) == {}


def test_a_version_of_the_users_own_is_kept(store: Store, clock: ManualClock) -> None:
    flows = again(store, clock)
    run = start(flows, stage("a"), config_version="release-7")
    assert flows.workflow(run.id).config_version == "release-7"
    assert told(flows, run.id) == []


def test_a_version_that_is_another_fingerprint_is_drift_at_the_start(
    store: Store, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    flows = again(store, clock)
    with caplog.at_level(logging.WARNING, "holdfast"):
        run = start(flows, stage("a"), config_version=MORE.config_fingerprint())
    assert told(flows, run.id) == [["config_version"]]
    assert "was started with another configuration" in caplog.text
    same = start(flows, stage("a"), config_version=flows.configs.handler.config_fingerprint())
    assert told(flows, same.id) == []
    with pytest.raises(ConfigurationError, match="config_version was"):
        start(again(store, clock, EngineConfig(drift_policy="refuse")), stage("a"), config_version="0123456789abcdef")


@pytest.mark.parametrize("by_message", [False, True])
def test_a_workflow_that_is_resumed_says_what_has_changed(store: Store, clock: ManualClock, by_message: bool) -> None:
    run = start(first := again(store, clock), stage("a"))
    first.pause(run.id)
    flows = again(store, clock, MORE)
    if by_message:
        flows.queue.push(ResumeStage(execution_id=run.id, stage_id="a"))
        flows.worker().run_once()
    else:
        flows.resume(run.id)
    assert told(flows, run.id) == [["max_workers"]]


def test_a_workflow_that_is_recovered_says_what_has_changed(store: Store, clock: ManualClock) -> None:
    run = start(again(store, clock), stage("a"))
    lose_items(store, run.id)
    flows = again(store, clock, MORE)
    assert flows.recovery.recover(run.id).status is RecoveryStatus.RECOVERED
    assert told(flows, run.id) == [["max_workers"]]


def test_where_drift_is_refused_nothing_is_taken_up_again(store: Store, clock: ManualClock) -> None:
    first = again(store, clock)
    paused, lost = start(first, stage("a")), start(first, stage("a"))
    first.pause(paused.id)
    lose_items(store, lost.id)
    flows = again(store, clock, EngineConfig(drift_policy="refuse", merge_strict=True))
    with pytest.raises(ConfigurationError, match="configuration: merge_strict was False and is True; go back"):
        flows.resume(paused.id)
    assert paused.status is S.PAUSED
    result = flows.recovery.recover(lost.id)
    assert (result.status, "another configuration" in result.message) == (RecoveryStatus.FAILED, True)
    first.resume(paused.id)
    assert paused.status is S.RUNNING


def test_where_drift_is_ignored_nothing_is_said(store: Store, clock: ManualClock) -> None:
    first = again(store, clock)
    run = start(first, stage("a"))
    first.pause(run.id)
    flows = again(store, clock, EngineConfig(drift_policy="ignore"))
    flows.resume(run.id)
    assert told(flows, run.id) == []


@pytest.mark.parametrize("policy", ["warn", "refuse"])
def test_to_say_what_follows_from_a_drift_is_none(
    store: Store, clock: ManualClock, policy: Literal["warn", "refuse"]
) -> None:
    first = again(store, clock, EngineConfig(drift_policy="ignore"))
    run = start(first, stage("a"))
    first.pause(run.id)
    flows = again(store, clock, EngineConfig(drift_policy=policy))
    flows.resume(run.id)
    assert told(flows, run.id) == []
