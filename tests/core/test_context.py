"""The context: identity, properties, and how it travels with the code."""

from __future__ import annotations

import asyncio
import math
import threading
from contextvars import copy_context

import pytest

from holdfast import Deadline, ResilienceContext, TypedKey, current_context, deadline, remaining_time, use_context
from holdfast.testing.clock import ManualClock

TENANT = TypedKey[str]("tenant")
ATTEMPT = TypedKey[int]("attempt")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def test_keys_of_one_name_and_type_are_the_same_key() -> None:
    assert TypedKey[int]("x") == TypedKey[int]("x")
    assert hash(TypedKey[int]("x")) == hash(TypedKey[int]("x"))


def test_keys_of_one_name_but_different_types_do_not_collide() -> None:
    ctx = ResilienceContext("op")
    ctx.set(TypedKey[int]("x"), 1)
    ctx.set(TypedKey[str]("x"), "one")
    assert ctx.get(TypedKey[int]("x")) == 1
    assert ctx.get(TypedKey[str]("x")) == "one"
    assert TypedKey[int]("x") != TypedKey[str]("x")
    assert TypedKey[list[int]]("x") != TypedKey[list[str]]("x")


def test_a_key_records_its_declared_type_at_run_time() -> None:
    assert TypedKey[int]("x").declared is int
    assert TypedKey[dict[str, int]]("x").declared == dict[str, int]
    assert repr(TENANT) == "TypedKey[str]('tenant')"


def test_a_property_that_was_never_set_is_the_default() -> None:
    ctx = ResilienceContext("op")
    assert ctx.get(TENANT) is None
    assert ctx.get(TENANT, "acme") == "acme"


def test_a_stored_zero_is_a_value() -> None:
    ctx = ResilienceContext("op")
    ctx.set(ATTEMPT, 0)
    assert ctx.get(ATTEMPT, 7) == 0


def test_a_call_id_is_twelve_hex_digits_and_new_each_time() -> None:
    ids = {ResilienceContext("op").call_id for _ in range(100)}
    assert len(ids) == 100
    for call_id in ids:
        assert len(call_id) == 12
        int(call_id, 16)


def test_a_context_without_a_deadline_never_expires() -> None:
    assert ResilienceContext("op").deadline.remaining() == math.inf


def test_a_child_has_a_new_id_and_knows_its_parent() -> None:
    parent = ResilienceContext("op")
    child = parent.derive_child("op.inner")
    assert child.parent_call_id == parent.call_id
    assert child.call_id != parent.call_id
    assert child.operation_key == "op.inner"
    assert parent.derive_child().operation_key == "op"


def test_a_child_copies_the_properties_and_its_writes_never_leak_up() -> None:
    parent = ResilienceContext("op")
    parent.set(TENANT, "acme")
    child = parent.derive_child()
    child.set(TENANT, "other")
    child.set(ATTEMPT, 1)
    assert parent.get(TENANT) == "acme"
    assert parent.get(ATTEMPT) is None
    assert parent.derive_child().get(TENANT) == "acme"


def test_a_child_keeps_the_deadline_object_unless_a_tighter_one_is_given(clock: ManualClock) -> None:
    parent = ResilienceContext("op", Deadline.after(5, clock))
    tighter, looser = Deadline.after(3, clock), Deadline.after(9, clock)
    assert parent.derive_child().deadline is parent.deadline
    assert parent.derive_child(deadline=looser).deadline is parent.deadline
    assert parent.derive_child(deadline=tighter).deadline is tighter


def test_properties_are_handed_out_as_a_copy() -> None:
    ctx = ResilienceContext("op")
    ctx.properties[TENANT] = "acme"
    assert ctx.get(TENANT) is None


def test_outside_of_a_call_there_is_no_context() -> None:
    assert current_context() is None
    assert remaining_time() == math.inf
    assert remaining_time(7) == 7


def test_use_context_shows_the_context_inside_and_the_old_one_after() -> None:
    outer, inner = ResilienceContext("outer"), ResilienceContext("inner")
    with use_context(outer) as shown:
        assert shown is outer
        with use_context(inner):
            assert current_context() is inner
        assert current_context() is outer
    assert current_context() is None


def test_use_context_restores_after_an_exception() -> None:
    with pytest.raises(OSError, match="down"), use_context(ResilienceContext("op")):
        raise OSError("down")
    assert current_context() is None


async def test_a_context_is_visible_through_to_thread() -> None:
    ctx = ResilienceContext("op")
    with use_context(ctx):
        assert await asyncio.to_thread(current_context) is ctx


def test_a_context_is_visible_in_a_thread_with_a_copied_context_and_not_in_a_bare_one() -> None:
    ctx, seen = ResilienceContext("op"), []
    with use_context(ctx):
        copied = copy_context()
        for target in (
            lambda: copied.run(lambda: seen.append(current_context())),
            lambda: seen.append(current_context()),
        ):
            thread = threading.Thread(target=target)
            thread.start()
            thread.join()
    assert seen == [ctx, None]


async def test_tasks_do_not_see_each_others_contexts() -> None:
    async def inside(name: str) -> str:
        with use_context(ResilienceContext(name)):
            await asyncio.sleep(0)
            ctx = current_context()
            assert ctx is not None
            return ctx.operation_key

    assert await asyncio.gather(inside("a"), inside("b")) == ["a", "b"]
    assert current_context() is None


def test_a_deadline_block_bounds_what_runs_in_it(clock: ManualClock) -> None:
    with deadline(5, clock=clock) as bound:
        assert bound.remaining() == 5
        assert remaining_time() == 5
        clock.advance(2)
        assert remaining_time() == 3
    assert remaining_time() == math.inf


def test_a_nested_deadline_only_tightens(clock: ManualClock) -> None:
    with deadline(5, clock=clock):
        with deadline(9, clock=clock) as looser:
            assert looser.remaining() == 5
            assert remaining_time() == 5
        with deadline(2, clock=clock):
            assert remaining_time() == 2
        assert remaining_time() == 5


def test_a_deadline_that_has_passed_leaves_zero_not_less(clock: ManualClock) -> None:
    with deadline(-3, clock=clock) as passed:
        assert passed.expired()
        assert remaining_time() == 0


def test_a_deadline_block_takes_a_deadline_object(clock: ManualClock) -> None:
    given = Deadline.after(4, clock)
    with deadline(given) as bound:
        assert bound.at == given.at
        assert remaining_time() == 4


def test_a_deadline_on_another_clock_still_tightens(clock: ManualClock) -> None:
    other = ManualClock(start=50_000)
    with deadline(5, clock=clock), deadline(9, clock=other):
        assert remaining_time() == 5


def test_a_deadline_decorates_a_function_and_starts_anew_at_each_call(clock: ManualClock) -> None:
    @deadline(5, clock=clock)
    def left() -> float:
        return remaining_time()

    assert left() == 5
    clock.advance(100)
    assert left() == 5


async def test_a_deadline_works_in_an_async_with_block(clock: ManualClock) -> None:
    async with deadline(5, clock=clock):
        assert remaining_time() == 5
        assert await asyncio.to_thread(remaining_time) == 5
    assert remaining_time() == math.inf


async def test_a_deadline_decorates_an_async_function(clock: ManualClock) -> None:
    @deadline(5, clock=clock)
    async def left() -> float:
        await asyncio.sleep(0)
        return remaining_time()

    assert await left() == 5


def test_a_deadline_block_keeps_the_identity_and_the_properties_of_the_call(clock: ManualClock) -> None:
    ctx = ResilienceContext("op")
    ctx.set(TENANT, "acme")
    with use_context(ctx), deadline(5, clock=clock):
        seen = current_context()
        assert seen is not None
        assert (seen.call_id, seen.operation_key, seen.get(TENANT)) == (ctx.call_id, "op", "acme")
        assert seen.deadline.remaining() == 5
