"""The story: `python -m examples.fulfilment` (a few seconds, SQLite, three processes).

A dear order waits for somebody's word, and its worker dies meanwhile. The next one is killed in the middle of packing.
A third one carries on: the card is charged once, and one parcel leaves.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from examples.fulfilment.orders import Orders
from examples.fulfilment.outside import Outside
from holdfast import Holdfast, WorkflowStatus

PATIENCE_S = 30.0
LOOK_S = 0.05


class Crew:
    """One worker at a time, each a process."""

    def __init__(self, *arguments: str) -> None:
        self._command = [sys.executable, "-m", "examples.fulfilment.worker", *arguments]
        self._worker: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._worker = subprocess.Popen(self._command)

    def kill(self) -> None:
        """kill -9: no goodbye, no last word to the database."""
        if self._worker is not None:
            self._worker.kill()
            self._worker.wait()
            self._worker = None


def tell(hold: Holdfast, outside: Outside, crew: Crew) -> None:
    orders = Orders(outside)
    flows = orders.known_to(hold)

    def stands() -> str:
        return ", ".join(f"{ref} {status}" for ref, status in flows.stages(run.id).items())

    print("ann orders an anchor for 400.00, which is so much that somebody has to approve it:")
    order = {"id": "o-7", "item": "anchor", "cents": 400_00, "address": "Pier 7"}
    run = flows.start(orders.fulfil, order, idempotency_key="o-7")
    again = flows.start(orders.fulfil, order, idempotency_key="o-7")
    print(f"    she clicked twice, and there is {'one workflow' if again.id == run.id else 'another workflow'}")
    crew.start()
    until(lambda: flows.stages(run.id)["wait_signal"] is WorkflowStatus.SUSPENDED)
    until(lambda: flows.stages(run.id)["label"] is WorkflowStatus.SUCCEEDED)
    print(f"    {stands()}")

    print("the worker is killed. Nobody works now; bob approves all the same:")
    crew.kill()
    heard = flows.signal(run.id, "approved", {"by": "bob"})
    print(f"    {'the workflow goes on' if heard else 'nothing waited for that'}: {stands()}")

    print("the next worker packs, the conveyor stands still, and the worker is killed in the middle of it:")
    outside.jam()
    crew.start()
    until(lambda: outside.asked("pack") == 1)
    crew.kill()
    print(f"    {stands()}")

    print("the conveyor runs again, and a third worker carries on:")
    outside.clear()
    crew.start()
    print(f"    {run.result(timeout=PATIENCE_S)}")
    print(f"    {stands()}")
    for what in ("charge", "pack", "ship"):
        print(f"    {what}: asked {outside.asked(what)}, done {outside.done(what)}")


def until(is_so: Callable[[], bool]) -> None:
    for _ in range(int(PATIENCE_S / LOOK_S)):
        if is_so():
            return
        time.sleep(LOOK_S)
    raise SystemExit("that took too long")


def main(folder: Path) -> None:
    url = f"sqlite:///{folder / 'shop.db'}"
    crew = Crew(url, str(folder))
    try:
        with Holdfast(url) as hold:
            tell(hold, Outside(folder), crew)
    finally:
        crew.kill()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        main(Path(place))
