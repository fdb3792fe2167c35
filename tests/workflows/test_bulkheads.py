"""Bulkheads of task types: who runs, who waits, who is refused, and what is counted."""

from __future__ import annotations

import asyncio
import contextvars
import os
import random
import threading

import pytest

from holdfast.core.context import deadline, remaining_time
from holdfast.errors import BulkheadFullError, PolicyError, TransientError
from holdfast.testing.clock import ManualClock
from holdfast.workflows.bulkheads import TaskBulkheadManager
from holdfast.workflows.config import ResilienceConfig
from tests.workflows.gates import PATIENCE_S, Gate, Pending, made, until

STATS = {
    "active", "queued", "max_concurrent", "max_queue_size", "completed", "failed", "rejected", "timed_out", "abandoned",
}  # fmt: skip


@pytest.fixture
def gate():
    gate = Gate("through")
    yield gate
    gate.open()


@pytest.fixture
def manager():
    manager = made()
    yield manager
    manager.shutdown(wait=False, cancel=True)


def ours():
    return [thread for thread in threading.enumerate() if thread.name.startswith("holdfast-task")]


async def doubled(number):
    await asyncio.sleep(0)
    return 2 * number


def test_a_new_manager_has_no_threads():
    before = set(ours())
    TaskBulkheadManager(ResilienceConfig())
    assert set(ours()) == before


def test_the_call_of_the_seed_works(manager):
    result = manager.execute_with_timeout(
        task_type="http", func=lambda *, url: f"GET {url}", url="http://shop", timeout=30.0
    )
    assert result.success
    assert result.result == "GET http://shop"
    assert (result.error, result.timed_out, result.rejected) == (None, False, False)


def test_an_async_function_runs_to_its_end(manager):
    assert manager.execute_with_timeout("http", doubled, 4).result == 8


def test_a_function_that_answers_with_a_coroutine_has_it_awaited(manager):
    assert manager.execute_with_timeout("http", lambda: doubled(4)).result == 8


def test_an_error_comes_back_as_the_very_object_that_was_raised(manager):
    error = ValueError("no such order")

    def fail():
        raise error

    async def fail_async():
        raise error

    for func in (fail, fail_async):
        result = manager.execute_with_timeout("http", func)
        assert not result.success
        assert result.error is error
    assert manager.get_all_stats()["http"]["failed"] == 2


@pytest.mark.parametrize(("stop", "failed"), [(SystemExit(3), 2), (KeyboardInterrupt(), 0)])
def test_a_call_that_wants_to_end_the_process_is_no_result_for_who_waits(manager, stop, failed):
    def leave():
        raise stop

    async def leave_async():
        raise stop

    for func in (leave, leave_async):
        with pytest.raises(type(stop)):
            manager.execute_with_timeout("http", func)
    assert manager.execute_with_timeout("http", doubled, 1).result == 2, "the loop goes on"
    assert manager.get_all_stats()["http"]["failed"] == failed


def test_a_type_runs_so_many_calls_and_keeps_so_many_waiting(manager, gate):
    running = [Pending(manager, "http", gate) for _ in range(2)]
    gate.entered(2)
    waiting = Pending(manager, "http", gate)
    refused = manager.execute_with_timeout("http", gate)
    stats = manager.get_all_stats()["http"]
    assert (stats["active"], stats["queued"], stats["rejected"]) == (2, 1, 1)
    assert refused.rejected
    assert isinstance(refused.error, BulkheadFullError)
    assert isinstance(refused.error, TransientError)
    assert refused.error.retry_after > 0
    assert "2 running, 1 waiting" in str(refused.error)
    gate.open()
    assert [one.result().result for one in (*running, waiting)] == ["through"] * 3
    until(lambda: manager.get_all_stats()["http"]["active"] == 0)
    assert manager.get_all_stats()["http"]["completed"] == 3


def test_whoever_waits_longest_runs_first(gate):
    manager, order = made(http=(1, 3, 30.0)), []
    first = Pending(manager, "http", gate)
    gate.entered()
    waiting = [Pending(manager, "http", order.append, number) for number in range(3)]
    gate.open()
    for one in (first, *waiting):
        one.result()
    assert order == [0, 1, 2]


def test_a_refusal_says_about_how_long_calls_take():
    clock = ManualClock(auto=False)
    manager, gate = made(clock, http=(2, 0, 30.0)), Gate()
    manager.execute_with_timeout("http", clock.advance, 6.0)
    running = [Pending(manager, "http", gate) for _ in range(2)]
    gate.entered(2)
    assert manager.execute_with_timeout("http", gate).error.retry_after == pytest.approx(3.0)
    gate.open()
    for one in running:
        one.result()


def test_a_type_that_hangs_takes_nothing_from_the_others(manager, gate):
    hung = [Pending(manager, "http", gate) for _ in range(3)]
    gate.entered(2)
    for task_type in ("shell", "python", "made-up"):
        assert manager.execute_with_timeout(task_type, lambda: "at once", timeout=PATIENCE_S).result == "at once"
    gate.open()
    for one in hung:
        one.result()


def test_unlisted_types_have_the_default_limits_each_for_itself(gate):
    manager = made(default=(1, 0, 30.0))
    held = Pending(manager, "mail", gate)
    gate.entered()
    assert manager.execute_with_timeout("mail", int).rejected
    assert manager.execute_with_timeout("fax", int).success
    gate.open()
    held.result()
    assert manager.get_all_stats()["fax"]["max_concurrent"] == 1


def test_the_figures_have_every_listed_type_and_the_default():
    stats = TaskBulkheadManager(ResilienceConfig()).get_all_stats()
    assert set(stats) == {"shell", "python", "http", "docker", "ssh", "default"}
    assert all(set(one) == STATS for one in stats.values())
    assert stats["http"]["max_concurrent"] == 10
    assert stats["python"]["max_queue_size"] == 20


def test_a_slot_that_is_free_can_be_asked_for(manager, gate):
    assert manager.free_slots("http") == 2
    held = [Pending(manager, "http", gate) for _ in range(3)]
    gate.entered(2)
    assert manager.free_slots("http") == 0
    gate.open()
    for one in held:
        one.result()
    until(lambda: manager.free_slots("http") == 2)


def test_who_is_told_of_the_end_finds_the_slot_free(gate):
    manager, free, told = made(http=(1, 0, 30.0)), [], threading.Event()

    def on_done(result):
        free.append(manager.free_slots("http"))
        told.set()

    manager.submit("http", int, on_done=on_done)
    assert told.wait(PATIENCE_S)
    assert free == [1]


def test_calls_that_follow_each_other_share_a_thread(manager):
    threads, told = [], threading.Event()

    def follow(result):
        if len(threads) < 50:
            manager.submit("http", lambda: threads.append(threading.current_thread()), on_done=follow)
        else:
            told.set()

    follow(None)
    assert told.wait(PATIENCE_S)
    assert len(set(threads)) == 1


def test_threads_end_when_they_find_nothing_to_do():
    manager, workers = made(idle_s=0.001), []
    manager.execute_with_timeout("http", lambda: workers.append(threading.current_thread()))
    workers[0].join(PATIENCE_S)
    assert not workers[0].is_alive()
    assert manager.execute_with_timeout("http", int).success, "another one comes"


def test_the_callers_context_goes_along_and_nothing_comes_back(manager):
    tenant = contextvars.ContextVar("tenant", default="nobody")
    tenant.set("shop")

    def look():
        seen = tenant.get()
        tenant.set("another")
        return seen

    async def look_async():
        return look()

    for func in (look, look_async):
        assert manager.execute_with_timeout("http", func).result == "shop"
        assert tenant.get() == "shop"


def test_a_task_reads_how_much_time_it_has():
    manager = made(ManualClock(auto=False))

    async def left():
        return remaining_time()

    assert manager.execute_with_timeout("http", remaining_time).result == 30.0
    assert manager.execute_with_timeout("http", left, timeout=7.0).result == 7.0


def test_a_deadline_around_the_call_tightens_its_time():
    clock = ManualClock(auto=False)
    with deadline(5.0, clock=clock):
        assert made(clock).execute_with_timeout("http", remaining_time, timeout=20.0).result == 5.0


@pytest.mark.parametrize("timeout", [0, -1, float("inf"), float("nan"), "30", True])
def test_a_time_limit_that_is_none_is_refused_at_once(manager, timeout):
    with pytest.raises(PolicyError, match="timeout must be"):
        manager.execute_with_timeout("http", int, timeout=timeout)


def test_a_listener_that_fails_costs_neither_the_thread_nor_the_slot(manager, caplog):
    told = threading.Semaphore(0)

    def on_done(result):
        told.release()
        raise RuntimeError("of the listener")

    for _ in range(5):
        manager.submit("http", int, on_done=on_done)
        assert told.acquire(timeout=PATIENCE_S)
    assert manager.execute_with_timeout("http", int).success
    assert "of the listener" in caplog.text


def test_a_machine_without_threads_refuses_and_recovers(manager, monkeypatch):
    def cannot(self):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", cannot)
        assert manager.execute_with_timeout("http", int).rejected
        assert manager.execute_with_timeout("http", doubled, 1).rejected
        assert Pending(manager, "http", int).result().rejected
    assert manager.free_slots("http") == 2
    assert manager.execute_with_timeout("http", int).success


@pytest.mark.torture
def test_whatever_happens_every_call_is_reported_once_and_every_slot_comes_back(seed, size):
    chance, manager = random.Random(seed), made(http=(3, 4, 30.0), mail=(1, 2, 30.0))
    lock, active, most = threading.Lock(), dict.fromkeys(("http", "mail"), 0), dict.fromkeys(("http", "mail"), 0)

    def work(task_type, what):
        with lock:
            active[task_type] += 1
            most[task_type] = max(most[task_type], active[task_type])
        try:
            if what == "fails":
                raise ValueError(what)
            return doubled(1) if what == "goes on" else sum(range(1000))
        finally:
            with lock:
                active[task_type] -= 1

    calls = []
    for _ in range(300 * size):
        task_type, what = chance.choice(["http", "mail"]), chance.choice(["fails", "works", "goes on"])
        limit = chance.choice([1e-6, 1e-4, 10.0])
        calls.append(Pending(manager, task_type, work, task_type, what, timeout=limit))
        if chance.random() < 0.1:
            chance.choice(calls).call.cancel("of no use", abandon=chance.random() < 0.5)
    for one in calls:
        one.result()
    assert most["http"] <= 3
    assert most["mail"] <= 1
    until(lambda: manager.free_slots("http") == 3 and manager.free_slots("mail") == 1)
    assert manager.shutdown()
    until(lambda: all(one["abandoned"] == 0 for one in manager.get_all_stats().values()))


def test_a_forked_process_has_slots_and_threads_of_its_own(gate):
    manager = made(http=(2, 0, 30.0))
    assert manager.execute_with_timeout("http", doubled, 3).result == 6  # there are threads, and a loop
    both = [Pending(manager, "http", gate) for _ in range(2)]
    gate.entered(2)
    child = os.fork()
    if child == 0:
        plain = manager.execute_with_timeout("http", divmod, 7, 2, timeout=5.0)
        later = manager.execute_with_timeout("http", doubled, 4, timeout=5.0)
        os._exit(0 if (plain.result, later.result) == ((3, 1), 8) else 1)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    gate.open()
    assert all(one.result().success for one in both)
    manager.shutdown()
    assert code == 0, "the child waited for its parent's threads"
