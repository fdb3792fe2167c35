"""Tasks that are called as the functions that they are."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.errors import ConfigurationError
from holdfast.letters.replaying import current_idempotency_key
from holdfast.testing import WorkflowTestKit, in_task
from holdfast.workflows.functions import task, workflow
from holdfast.workflows.patches import patched
from holdfast.workflows.task_context import TaskContext, current_task


def here() -> TaskContext:
    found = current_task()
    assert found is not None
    return found


@task
def pay(price: int) -> tuple[str, int, int]:
    return here().idempotency_key, here().attempt, price


@task
async def pay_later(price: int) -> tuple[str, int, int]:
    await asyncio.sleep(0)
    return here().idempotency_key, here().attempt, price


def test_a_task_that_asks_which_one_it_is_can_be_called_as_a_function() -> None:
    with in_task("pay", attempt=2, idempotency_key="order-7") as told:
        assert pay(90) == ("order-7", 2, 90)
        assert told is here()
        assert (told.task, told.ref, told.workflow_id) == ("pay", "pay", "test")
        assert current_idempotency_key() == "order-7"
    assert current_task() is None
    assert current_idempotency_key() is None


def test_blocks_nest_and_an_error_ends_them() -> None:
    with in_task(idempotency_key="outer"):
        with pytest.raises(ZeroDivisionError), in_task(idempotency_key="inner"):
            assert pay(1)[0] == "inner"
            raise ZeroDivisionError
        assert pay(1)[0] == "outer"


async def test_it_decorates_a_test_and_holds_until_that_was_awaited() -> None:
    @in_task(idempotency_key="order-8")
    async def tested() -> None:
        assert await pay_later(90) == ("order-8", 1, 90)

    await tested()
    assert current_task() is None


def test_it_has_the_patches_that_it_is_given() -> None:
    with in_task(patches=("new-price",)):
        assert patched("new-price")
        assert not patched("other")


def test_it_says_that_no_engine_runs_it() -> None:
    with in_task(), pytest.raises(ConfigurationError, match="needs a task that an engine runs"):
        here().finalize("close")


def test_an_engine_in_the_block_runs_its_tasks_as_what_they_are() -> None:
    with in_task(idempotency_key="mine"), WorkflowTestKit() as kit:
        run = kit.start(workflow(name="paying")(lambda price: pay(price)), 90)
        assert kit.finish(run)[0] != "mine"
        assert here().idempotency_key == "mine"
