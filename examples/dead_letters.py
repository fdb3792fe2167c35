"""Payments that fail are kept, and made up for when the bank is back: `python examples/dead_letters.py` (3 seconds).

The bank goes down. Three orders become dead letters in a SQLite file: two used up their attempts, the third was refused
by the open breaker. One order is sent by hand meanwhile, and its letter resolved. Then the bank is back, and the worker
drains the rest: its first letter is the breaker's probe. Needs holdfast[sql].
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from holdfast import (
    Breaker,
    CircuitOpen,
    Holdfast,
    RecoveryPolicy,
    Retry,
    WorkerPolicy,
    consecutive,
    current_idempotency_key,
    current_replay,
    letter_id_of,
)

PATIENCE_S = 20.0


class Bank:
    """Answers while it is up."""

    up = False

    def charge(self, order: str, cents: int, key: str | None) -> None:
        """A real one would charge once for each key, however often it is asked."""
        if not self.up:
            raise ConnectionError("bank is down")


def main(url: str) -> None:
    bank = Bank()
    # Letters usually rest for half a minute after a failure; an example has less time.
    with Holdfast(url, recovery=RecoveryPolicy(settle_s=0)) as hold:
        payments = hold.guard(
            "payments", Retry(attempts=2, base=0.05), Breaker(consecutive(4), open_for=1), dead_letter=True
        )

        @payments.replayable
        def charge(order_id: str, cents: int) -> None:
            bank.charge(order_id, cents, current_idempotency_key())
            replay = current_replay()  # None in an ordinary call
            print(f"    {order_id}: charged" + ("" if replay is None else f" on attempt {replay.attempt}"))

        print("the bank is down:")
        for order, cents in (("o-1", 1999), ("o-2", 500), ("o-3", 700)):
            try:
                charge(order, cents)
            except (ConnectionError, CircuitOpen) as error:
                print(f"    {order}: {type(error).__name__}, kept as {letter_id_of(error)}")
        print(f"    {waiting(hold)} letters wait\n")

        print("an operator has sent o-2 by hand:")
        [letter] = hold.letters.find(entity_id="o-2")
        hold.letters.mark_as_resolved(letter.id, "manual_fix", "paid at the counter", resolved_by_id="ann")
        print(f"    {waiting(hold)} letters wait\n")

        print("the bank is back, and a worker runs:")
        bank.up = True
        worker = hold.worker(WorkerPolicy(poll_s=0.2, idle_s=0.5)).start()
        drain(hold)
        worker.stop(timeout=5)
        print(f"    drained: {waiting(hold)} letters wait, the circuit is {payments.circuit.state}")


def waiting(hold: Holdfast) -> int:
    return hold.letters.count(status="pending")


def drain(hold: Holdfast) -> None:
    """Wait until nothing is pending or in somebody's hands."""
    give_up = time.monotonic() + PATIENCE_S
    while hold.letters.count(status="pending") + hold.letters.count(status="replaying"):
        if time.monotonic() > give_up:
            raise SystemExit("the letters were not drained in time")
        time.sleep(0.1)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(f"sqlite:///{Path(folder) / 'holdfast.db'}")
