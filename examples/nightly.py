"""Every night the books are closed: `python -m examples.nightly` (a second; time is moved by hand).

A schedule starts `close_books` at 02:30 in Berlin. It starts a workflow for each branch, of which two run at once, and
adds up what they return. One night clocks are changed; another night a branch is away, and a retry goes on where it
was. Needs holdfast[sql,cron].
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from holdfast import Holdfast, Retry, WorkflowRun, WorkflowStatus, task, workflow
from holdfast.testing import ManualClock

BERLIN = ZoneInfo("Europe/Berlin")
BRANCHES = ["Altona", "Mitte", "Spandau"]
TAKINGS = {"Altona": 410, "Mitte": 1290, "Spandau": 75}


class Books:
    """The workflows of a shop with branches. `away` are the branches that do not answer."""

    def __init__(self, hold: Holdfast) -> None:
        self.away: set[str] = set()
        self.asked: list[str] = []
        self.flows = hold.workflows

        @task(retry=Retry(attempts=2, base=60))
        def fetch(branch: str) -> int:
            self.asked.append(branch)
            if branch in self.away:
                raise ConnectionError(f"{branch} does not answer")
            return TAKINGS[branch]

        @task
        def enter(branch: str, takings: int) -> dict[str, Any]:
            return {"branch": branch, "takings": takings}

        @task
        def add_up(entries: list[dict[str, Any]]) -> int:
            return sum(entry["takings"] for entry in entries)

        @workflow(limit=2)
        def close_branch(branch: str) -> Any:
            return enter(branch, fetch(branch))

        @workflow
        def close_books(branches: Sequence[str]) -> Any:
            return add_up([close_branch(branch) for branch in branches])  # each a workflow of its own

        self.flows.schedule(
            "nightly books", close_books, {"branches": BRANCHES}, cron="30 2 * * *", timezone="Europe/Berlin"
        )

    @property
    def last(self) -> WorkflowRun:
        """What the schedule has started last."""
        return self.flows.get(str(self.flows.schedules.get("nightly books").last_run))


class Nights:
    """A worker that is there at every tick."""

    def __init__(self, books: Books, clock: ManualClock) -> None:
        self._books = books
        self._clock = clock
        self._worker = books.flows.worker()

    def pass_one(self) -> str:
        """The next tick, and everything that follows from it; when that was, in Berlin."""
        tick = self._books.flows.schedules.next("nightly books", 1)[0]
        self._clock.advance((tick - self._clock.wall()).total_seconds())
        self.work()
        self._clock.advance(120)  # a second attempt, where one is needed
        self.work()
        return f"{tick.astimezone(BERLIN):%a %d %b, %H:%M %Z}"

    def work(self) -> None:
        self._worker.run_once()

    def close(self) -> None:
        self._worker.close()


def tell(books: Books, nights: Nights) -> None:
    print("the books are closed every night at 02:30 in Berlin:")
    for _ in range(3):
        print(f"    {nights.pass_one()}: {books.last.result(0)} taken")
    print("clocks were changed: there was no 02:30 on Sunday, and the books were closed at 03:00")

    books.away.add("Mitte")
    print(f"Mitte does not answer:\n    {nights.pass_one()}: {books.last.status}")
    for one in reversed(books.flows.find(parent=books.last.id)):
        print(f"    {one.name} is {one.status}" + (f": {one.reason}" if one.reason else ""))

    books.away.clear()
    asked = len(books.asked)
    books.flows.retry(books.last.id, by="ann")
    nights.work()
    assert books.last.status is WorkflowStatus.SUCCEEDED
    print(f"it is back, and ann retries:\n    {books.last.result(0)} taken; asked again: {books.asked[asked:]}")


def main() -> None:
    clock = ManualClock()
    clock.advance((datetime(2026, 3, 27, 12, tzinfo=BERLIN) - clock.wall()).total_seconds())
    with tempfile.TemporaryDirectory() as folder:
        with Holdfast(f"sqlite:///{Path(folder) / 'books.db'}", clock=clock, background=False) as hold:
            books = Books(hold)
            nights = Nights(books, clock)
            tell(books, nights)
            nights.close()


if __name__ == "__main__":
    main()
