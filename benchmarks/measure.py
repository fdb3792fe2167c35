"""How a row is measured: the timing loops, and the proof that a contender does what its row says."""

import asyncio
import gc
import os
import subprocess
import sys
import tracemalloc
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from inspect import iscoroutinefunction
from itertools import repeat
from threading import Barrier, Thread
from time import perf_counter
from typing import Any

from benchmarks.rows import Row, Shape

THREADS = 4
TASKS = 1_000
BREAKERS = 10_000
MOST_CALLS = 200_000


def answer(x):
    return x


async def async_answer(x):
    return x


async def async_pause(x):
    await asyncio.sleep(0)
    return x


def fail(x):
    raise ConnectionError("down")


async def async_fail(x):
    raise ConnectionError("down")


def sync_calls(call, times):
    start = perf_counter()
    for _ in repeat(None, times):
        call(1)
    return perf_counter() - start


def sync_failures(call, times):
    start = perf_counter()
    for _ in repeat(None, times):
        try:
            call(1)
        except Exception:
            pass
    return perf_counter() - start


async def async_calls(call, times):
    start = perf_counter()
    for _ in repeat(None, times):
        await call(1)
    return perf_counter() - start


async def async_failures(call, times):
    start = perf_counter()
    for _ in repeat(None, times):
        try:
            await call(1)
        except Exception:
            pass
    return perf_counter() - start


def thread_calls(call, times):
    barrier = Barrier(THREADS + 1)

    def work():
        barrier.wait()
        for _ in repeat(None, times // THREADS):
            call(1)

    threads = [Thread(target=work) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    barrier.wait()
    start = perf_counter()
    for thread in threads:
        thread.join()
    return perf_counter() - start


async def task_calls(call, times):
    start = perf_counter()
    for _ in repeat(None, times // TASKS):
        await asyncio.gather(*[call(1) for _ in range(TASKS)])
    return perf_counter() - start


LOOPS: dict[tuple[Shape, str], Callable[[Any, int], Any]] = {
    (Shape.SUCCESS, "sync"): sync_calls,
    (Shape.SUCCESS, "async"): async_calls,
    (Shape.FAILING, "sync"): sync_failures,
    (Shape.FAILING, "async"): async_failures,
    (Shape.REFUSED, "sync"): sync_failures,
    (Shape.REFUSED, "async"): async_failures,
    (Shape.THREADS, "sync"): thread_calls,
    (Shape.TASKS, "async"): task_calls,
}


@dataclass
class Witness:
    """A function that counts its runs and how many overlap."""

    colour: str
    body: Callable[[Any], Any]
    runs: int = 0
    running: int = 0
    peak: int = 0
    function: Callable[[Any], Any] = field(init=False)

    def __post_init__(self) -> None:
        def sync_witness(x):
            self.runs += 1
            return self.body(x)

        async def async_witness(x):
            self.runs += 1
            self.running += 1
            self.peak = max(self.peak, self.running)
            try:
                return await self.body(x)
            finally:
                self.running -= 1

        self.function = sync_witness if self.colour == "sync" else async_witness


async def attempt(call: Callable[[Any], Any]) -> Any:
    """The answer of one call of either colour, or None if it raised."""
    try:
        result = call(1)
        return await result if isinstance(result, Awaitable) else result
    except Exception:
        return None


async def build(contender: Any, row: Row, colour: str) -> Callable[[Any], Any]:
    """The guarded function of a row, made inside a running loop because some peers ask for one."""
    policy = getattr(contender, row.policy)
    failing = fail if colour == "sync" else async_fail
    if row.shape is Shape.FAILING:
        witness = Witness(colour, failing)
        await attempt(policy(witness.function))
        expect(contender, witness.runs == 3, f"made {witness.runs} attempts instead of 3")
        return policy(failing)
    if row.shape is Shape.REFUSED:
        witness = Witness(colour, failing)
        call = policy(witness.function if contender.label != "bare" else failing, failures=1)
        for _ in range(3):
            await attempt(call)
        runs = witness.runs
        await attempt(call)
        expect(contender, 0 < runs == witness.runs, "the open breaker let a call through")
        return call
    if row.shape is Shape.TASKS:
        witness = Witness(colour, async_pause)
        await task_calls(policy(witness.function, limit=100), TASKS)
        expect(contender, witness.peak == 100, f"{witness.peak} calls ran at once instead of 100")
        return policy(async_pause, limit=100)
    call = policy(answer if colour == "sync" else async_answer)
    expect(contender, await attempt(call) == 1, "did not return the function's answer")
    return call


def expect(contender: Any, holds: bool, complaint: str) -> None:
    if not holds and contender.label != "bare":
        raise AssertionError(complaint)


def time_calls(contender: Any, row: Row, colour: str, samples: int, seconds: float) -> list[float]:
    """Microseconds per call, one figure per sample of about `seconds`."""
    loop_over = LOOPS[row.shape, colour]
    step = TASKS if row.shape is Shape.TASKS else THREADS
    with asyncio.Runner() as runner:
        call = runner.run(build(contender, row, colour))

        def sample(times: int) -> float:
            gc.collect()
            gc.disable()
            try:
                if iscoroutinefunction(loop_over):
                    return runner.run(loop_over(call, times))
                return loop_over(call, times)
            finally:
                gc.enable()

        times = step
        while (took := sample(times)) < seconds / 4 and times < MOST_CALLS:
            times *= 4
        times = max(step, min(MOST_CALLS, int(times * seconds / took)) // step * step)
        return [sample(times) / times * 1e6 for _ in range(samples)]


def time_startup(contender: Any, row: Row, samples: int) -> list[float]:
    """Milliseconds of processor time that a snippet takes in a fresh interpreter, beyond its own start."""
    code = getattr(contender, row.policy)
    script = f"from time import process_time as now\nstart = now()\n{code}\nprint((now() - start) * 1e3)"

    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}

    def run() -> float:
        command = [sys.executable, "-c", script]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(done.stderr.strip().splitlines()[-1])
        return float(done.stdout)

    run()  # fills the bytecode cache
    return [run() for _ in range(samples)]


def weigh(contender: Any, row: Row) -> list[float]:
    """Bytes per breaker over many of them."""
    make = getattr(contender, row.policy)
    make()
    kept: list[Any] = [None] * BREAKERS
    gc.collect()
    tracemalloc.start()
    try:
        for index in range(BREAKERS):
            kept[index] = make()
        gc.collect()
        return [tracemalloc.get_traced_memory()[0] / BREAKERS]
    finally:
        tracemalloc.stop()


def measure(contender: Any, row: Row, colour: str, samples: int, seconds: float) -> list[float]:
    if row.shape is Shape.STARTUP:
        return time_startup(contender, row, min(samples, 3))
    if row.shape is Shape.MEMORY:
        return weigh(contender, row)
    return time_calls(contender, row, colour, samples, seconds)
