"""The token by which a task learns that nobody wants its result any more."""

from __future__ import annotations

import asyncio
import threading

import pytest

from holdfast import Guard, Retry
from holdfast.testing.clock import ManualClock
from holdfast.workflows.cancel import TaskToken, current_task_token
from tests.workflows.gates import PATIENCE_S


@pytest.fixture
def clock():
    return ManualClock(auto=False)


def test_outside_of_a_task_nobody_cancels():
    token = current_task_token()
    assert not token.cancelled
    token.raise_if_cancelled()


def test_a_token_keeps_its_first_reason_and_calls_back_once(clock):
    token, called = TaskToken(clock), []
    token.when_cancelled(lambda: called.append("kept"))
    token.when_cancelled(lambda: called.append("taken back"))()
    token.cancel("first")
    token.cancel("second")
    token.when_cancelled(lambda: called.append("late"))
    assert called == ["kept", "late"]
    assert token.wait()
    with pytest.raises(asyncio.CancelledError, match="first"):
        token.raise_if_cancelled()


def test_a_wait_ends_when_the_task_is_cancelled_or_the_time_is_over(clock):
    token, answers = TaskToken(clock), []
    for _ in range(2):
        thread = threading.Thread(target=lambda: answers.append(token.wait(5.0)))
        thread.start()
        clock.wait_for_sleepers()
        if answers:
            token.cancel("enough")
        else:
            clock.advance(5.0)
        thread.join(PATIENCE_S)
    assert answers == [False, True]


def test_no_guard_inside_a_task_retries_its_cancellation(clock):
    token, tries = TaskToken(clock), []
    token.cancel("the workflow was cancelled")

    def work():
        tries.append(1)
        token.raise_if_cancelled()

    with pytest.raises(asyncio.CancelledError):
        Guard("work", Retry(attempts=5), clock=clock)(work)()
    assert len(tries) == 1
