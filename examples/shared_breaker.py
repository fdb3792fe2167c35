"""One breaker in two processes: `python examples/shared_breaker.py` (4 seconds, no network).

Worker 1 finds that the stock service is down, and worker 2 stops asking too. After a second one of them probes, and
both are back. Then an operator holds the breaker open, for both at once. Needs holdfast[sql].
"""

from __future__ import annotations

import multiprocessing
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from multiprocessing.connection import Connection
from pathlib import Path

from holdfast import Breaker, Holdfast, consecutive

PATIENCE_S = 20.0


def work(url: str, orders: Connection) -> None:
    """A worker process: calls the stock service as it is told, and says what came of it."""

    def call() -> int:
        if order == "call, which fails":
            raise ConnectionError("stock is down")
        return 12

    with Holdfast(url) as hold:
        guard = hold.guard("stock", Breaker(consecutive(3), open_for=1))
        for order in iter(orders.recv, "stop"):
            outcome = None if order == "look" else guard.run(call)
            orders.send((str(guard.circuit.state), outcome is not None and outcome.is_success))


class Worker:
    """The process behind `work`, as others see it."""

    def __init__(self, url: str, processes: ExitStack) -> None:
        spawn = multiprocessing.get_context("spawn")
        self._orders, theirs = spawn.Pipe()
        process = spawn.Process(target=work, args=(url, theirs), daemon=True)
        process.start()
        processes.callback(process.join, 10)
        processes.callback(self._orders.send, "stop")

    def tell(self, order: str) -> tuple[str, bool]:
        """The state of its circuit, and whether the call succeeded."""
        self._orders.send(order)
        state, succeeded = self._orders.recv()
        return state, succeeded

    @property
    def state(self) -> str:
        return self.tell("look")[0]


def wait_until(is_so: Callable[[], bool]) -> None:
    give_up = time.monotonic() + PATIENCE_S
    while not is_so():
        if time.monotonic() > give_up:
            raise SystemExit("that took too long")
        time.sleep(0.05)


def main(url: str) -> None:
    with ExitStack() as processes:
        one, two = Worker(url, processes), Worker(url, processes)
        print(f"worker 1: {one.state}, worker 2: {two.state}")

        for _ in range(3):
            one.tell("call, which fails")
        wait_until(lambda: two.state == "open")
        print(f"worker 1 has seen three failures: worker 1: {one.state}, worker 2: {two.state}")

        wait_until(lambda: one.tell("call")[1])
        wait_until(lambda: two.state == "closed")
        print("a second later a probe has succeeded: both closed")

        with Holdfast(url) as operator:
            operator.breakers.atomic_force_open("stock", reason="inventory", controlled_by_id="ann", ttl_minutes=5)
            wait_until(lambda: one.state == two.state == "open")
            [state] = operator.breakers.get_open_states()
            print(f"both are {state.state}, held open by {state.controlled_by_id}: {state.control_reason}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(f"sqlite:///{Path(folder) / 'holdfast.db'}")
