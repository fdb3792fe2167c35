"""Failures that are written a little later, by a thread and in batches; in both colours."""

from __future__ import annotations

import multiprocessing
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from holdfast import (
    Capacity,
    DeadLetter,
    Holdfast,
    Hub,
    LetterKept,
    PolicyError,
    Retry,
    letter_id_of,
)
from holdfast.errors import StoreUnavailable
from holdfast.letters.box import LetterBox
from holdfast.letters.buffer import Buffer
from holdfast.testing.clock import ManualClock
from holdfast.testing.recorder import Recorder
from tests.guard.colours import Colour

PATIENCE_S = 30
NEVER_S = 600.0


class Held:
    """A writer that waits to be let go; what it wrote, batch by batch."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.begun = threading.Event()
        self.go_on = threading.Event()

    def __call__(self, batch: Sequence[int]) -> None:
        self.begun.set()
        assert self.go_on.wait(PATIENCE_S)
        self.batches.append(list(batch))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def hold(clock: ManualClock, recorder: Recorder) -> Iterator[Holdfast]:
    hub = Hub()
    hub.register(recorder)
    with Holdfast("memory://", clock=clock, telemetry=hub, background=False) as hold:
        yield hold


def patient(box: LetterBox, **options: Any) -> None:
    """Nothing is written before somebody asks for it."""
    box.buffer = Buffer(box._write, **{"delay": NEVER_S, **options})


class Away:
    """A store of which every commit fails."""

    def __init__(self, store: Any) -> None:
        self.store = store

    def __getattr__(self, name: str) -> Any:
        if name in ("commit", "get", "page", "tally"):
            raise StoreUnavailable("memory:// is away")
        return getattr(self.store, name)


def test_what_is_added_is_written_in_order_and_in_batches() -> None:
    held = Held()
    held.go_on.set()
    buffer = Buffer(held, batch=2, delay=NEVER_S)
    for number in range(5):
        assert buffer.add(number)
    buffer.close()
    assert [number for batch in held.batches for number in batch] == [0, 1, 2, 3, 4]
    assert max(map(len, held.batches)) == 2
    assert len(buffer) == 0


def test_one_alone_is_written_without_being_asked_for() -> None:
    written = threading.Event()
    buffer = Buffer[int](lambda batch: written.set(), delay=0.001)
    buffer.add(1)
    assert written.wait(PATIENCE_S)
    buffer.close()


def test_a_full_batch_does_not_wait_for_its_time() -> None:
    held = Held()
    held.go_on.set()
    buffer = Buffer(held, batch=2, delay=NEVER_S)
    buffer.add(1)
    buffer.add(2)
    assert held.begun.wait(PATIENCE_S)
    buffer.close()


def test_a_full_buffer_takes_no_more_while_its_writer_is_busy() -> None:
    held = Held()
    buffer = Buffer(held, room=3, batch=1)
    assert [buffer.add(number) for number in range(4)] == [True, True, True, False]
    held.go_on.set()
    buffer.flush()
    assert buffer.add(4)
    buffer.close()


def test_a_flush_waits_for_what_the_thread_is_writing() -> None:
    held = Held()
    buffer = Buffer(held, batch=1)
    buffer.add(1)
    assert held.begun.wait(PATIENCE_S)
    threading.Timer(0, held.go_on.set).start()
    buffer.flush()
    assert held.batches == [[1]]
    buffer.close()


def test_a_writer_may_flush_and_add() -> None:
    written: list[int] = []

    def write(batch: Sequence[int]) -> None:
        written.extend(batch)
        if batch == [1]:
            assert buffer.add(2)
            buffer.flush()

    buffer = Buffer(write, delay=NEVER_S)
    buffer.add(1)
    buffer.close()
    assert written == [1, 2]


def test_an_interrupted_write_is_made_again() -> None:
    written: list[int] = []
    interrupts = [KeyboardInterrupt()]

    def write(batch: Sequence[int]) -> None:
        if interrupts:
            raise interrupts.pop()
        written.extend(batch)

    buffer = Buffer(write, delay=NEVER_S)
    buffer.add(1)
    with pytest.raises(KeyboardInterrupt):
        buffer.flush()
    buffer.close()
    assert written == [1]


def test_a_writer_that_fails_costs_its_batch_only(caplog: pytest.LogCaptureFixture) -> None:
    written: list[int] = []

    def write(batch: Sequence[int]) -> None:
        if batch == [1]:
            raise RuntimeError("a bug")
        written.extend(batch)

    buffer = Buffer(write, batch=1, delay=NEVER_S)
    buffer.add(1)
    buffer.add(2)
    buffer.close()
    assert written == [2]
    assert "1 dead letters could not be written" in caplog.text


def test_the_thread_ends_when_there_is_nothing_to_write_and_begins_anew() -> None:
    held = Held()
    held.go_on.set()
    buffer = Buffer(held)
    for number in range(2):
        buffer.add(number)
        buffer.close()
        assert not [thread for thread in threading.enumerate() if thread.name == "holdfast-letters-buffer"]
    assert held.batches == [[0], [1]]


def test_the_exception_does_not_wait_for_the_store(hold: Holdfast, colour: Colour, recorder: Recorder) -> None:
    patient(hold.letters.box)
    pay = hold.guard("payments", Retry(attempts=1), dead_letter=DeadLetter(buffered=True))
    with pytest.raises(OSError, match="down") as caught:
        colour.call(pay, colour.fn([OSError("down")]), "o7")
    assert letter_id_of(caught.value) == "buffered"
    assert (hold.letters.count(), recorder.count(LetterKept)) == (0, 0)
    hold.letters.box.flush()
    (letter,) = hold.letters.find()
    assert letter_id_of(caught.value) == letter.id
    assert [(told.letter_id, told.how) for told in recorder.of(LetterKept)] == [(letter.id, "stored")]
    assert hold.letters.box.counts["stored"] == 1


def test_the_outcome_tells_the_id_once_it_is_known(hold: Holdfast, colour: Colour) -> None:
    patient(hold.letters.box)
    pay = hold.guard("payments", dead_letter=DeadLetter(buffered=True))
    outcome = colour.run(pay, colour.fn([OSError("down")]))
    assert outcome.metadata["letter"] == "buffered"
    hold.letters.box.flush()
    assert outcome.metadata["letter"] == hold.letters.find()[0].id


def test_many_failures_are_one_commit(hold: Holdfast, colour: Colour) -> None:
    patient(hold.letters.box)
    pay = hold.guard("payments", dead_letter=DeadLetter(buffered=True))
    commits = []
    commit = hold.store.commit

    def counted(changes: Any, **options: Any) -> Any:
        commits.append(len(changes))
        return commit(changes, **options)

    hold.store.commit = counted  # type: ignore[method-assign]
    for number in range(50):
        colour.run(pay, colour.fn([OSError(str(number))]))
    hold.letters.box.flush()
    assert commits == [50]
    told = [letter.error_message for letter in reversed(hold.letters.find(limit=50))]
    assert told == [f"OSError: {number}" for number in range(50)]


def test_without_the_option_the_write_stays_synchronous(hold: Holdfast, colour: Colour) -> None:
    colour.run(hold.guard("payments", dead_letter=True), colour.fn([OSError("down")]))
    assert (hold.letters.count(), len(hold.letters.box.buffer)) == (1, 0)


def test_a_full_buffer_falls_back_to_a_synchronous_write(hold: Holdfast, colour: Colour) -> None:
    patient(hold.letters.box, room=2)
    pay = hold.guard("payments", dead_letter=DeadLetter(buffered=True))
    outcomes = [colour.run(pay, colour.fn([OSError("down")])) for _ in range(3)]
    assert hold.letters.count() == 1
    assert letter_id_of(outcomes[2].error) == hold.letters.find()[0].id
    hold.letters.box.flush()
    assert hold.letters.count() == hold.letters.box.counts["stored"] == 3


def test_a_guard_around_a_guard_does_not_keep_a_buffered_failure_again(hold: Holdfast, colour: Colour) -> None:
    patient(hold.letters.box)
    inner = hold.guard("inner", dead_letter=DeadLetter(buffered=True))
    outer = hold.guard("outer", Retry(attempts=1, domain="outer"), dead_letter=DeadLetter(buffered=True))

    def body() -> Any:
        outcome = yield colour.inner(inner, colour.fn([OSError("down")]))
        raise outcome.error

    colour.run(outer, colour.fn(body))
    hold.letters.box.flush()
    assert [letter.domain for letter in hold.letters.find()] == ["inner"]


def test_equal_failures_in_a_batch_share_a_letter(hold: Holdfast) -> None:
    patient(hold.letters.box)
    pay = hold.guard("payments", dead_letter=DeadLetter(buffered=True, dedup=lambda args: args["order_id"]))
    errors = [pay.run(lambda order_id: 1 / 0, "o1").error for _ in range(3)]
    hold.letters.box.flush()
    (letter,) = hold.letters.find()
    assert letter.occurrences == 3
    assert {letter_id_of(error) for error in errors} == {letter.id}


def test_a_callers_transaction_is_written_in_at_once(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    with Holdfast(f"sqlite:///{path}", telemetry=Hub(), background=False) as hold:
        hold.letters.count()
        own = sqlite3.connect(path, isolation_level=None)
        pay = hold.guard("payments", dead_letter=DeadLetter(buffered=True, connection=lambda: own))
        own.execute("BEGIN IMMEDIATE")
        pay.run(lambda: 1 / 0)
        own.execute("COMMIT")
        assert (hold.letters.count(), len(hold.letters.box.buffer)) == (1, 0)
        own.close()


@pytest.mark.parametrize("spooled", [True, False])
def test_what_the_store_does_not_take_goes_to_the_spool(tmp_path: Path, colour: Colour, spooled: bool) -> None:
    hub, recorder = Hub(), Recorder()
    hub.register(recorder)
    spool = tmp_path / "spool" if spooled else None
    with Holdfast("memory://", telemetry=hub, background=False, spool=spool) as hold:
        patient(hold.letters.box)
        pay = hold.guard("payments", dead_letter=DeadLetter(buffered=True))
        real, hold.letters.store = hold.letters.store, Away(hold.letters.store)  # type: ignore[assignment]
        outcomes = [colour.run(pay, colour.fn([OSError("down")])) for _ in range(3)]
        hold.letters.box.flush()
        how = "spooled" if spooled else "lost"
        assert hold.letters.box.counts[how] == 3
        assert [told.how for told in recorder.of(LetterKept)] == [how] * 3
        assert {letter_id_of(outcome.error) for outcome in outcomes} == {"spooled" if spooled else None}
        hold.letters.store = real
        assert hold.letters.box.ingest() == (3 if spooled else 0)


def test_the_spool_is_read_back_when_a_batch_comes_through(tmp_path: Path) -> None:
    with Holdfast("memory://", telemetry=Hub(), background=False, spool=tmp_path / "spool") as hold:
        patient(hold.letters.box)
        pay = hold.guard("payments", dead_letter=DeadLetter(buffered=True))
        real, hold.letters.store = hold.letters.store, Away(hold.letters.store)  # type: ignore[assignment]
        pay.run(lambda: 1 / 0)
        hold.letters.box.flush()
        hold.letters.store = real
        for _ in range(2):
            pay.run(lambda: 1 / 0)
        hold.letters.box.flush()
        assert hold.letters.count() == 3


def test_one_that_cannot_be_stored_does_not_cost_the_others(hold: Holdfast) -> None:
    box = hold.letters.box
    good = {"domain": "payments", "failure_type": "X"}
    kept = box.put_many([good, {**good, "metadata": {"nan": float("nan")}}, good])
    assert [one.how for one in kept] == ["stored", "lost", "stored"]
    assert box.counts["stored"] == hold.letters.count() == 2


@pytest.mark.parametrize("overflow", ["drop_oldest", "compress_oldest", "reject"])
def test_a_batch_keeps_to_the_capacity(clock: ManualClock, overflow: str) -> None:
    capacity = Capacity(total=10, per_domain=5, overflow=overflow)
    with Holdfast("memory://", clock=clock, telemetry=Hub(), background=False, capacity=capacity) as hold:
        patient(hold.letters.box)
        pay = hold.guard("payments", dead_letter=DeadLetter(buffered=True))
        for _ in range(8):
            pay.run(lambda: 1 / 0)
        hold.letters.box.flush()
        assert hold.letters.count_all() == 5
        counts = hold.letters.box.counts
        assert (counts["stored"], counts["rejected"]) == ((5, 3) if overflow == "reject" else (8, 0))


def test_closing_writes_what_waits(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'shop.db'}"
    with Holdfast(url, telemetry=Hub(), background=False) as hold:
        patient(hold.letters.box)
        hold.guard("payments", dead_letter=DeadLetter(buffered=True)).run(lambda: 1 / 0)
    assert count(url) == 1


FAILS = """
import os, signal, sys
from holdfast import DeadLetter, Holdfast
hold = Holdfast(sys.argv[1])
hold.letters.count()
pay = hold.guard("payments", dead_letter=DeadLetter(buffered=True))
"""


def count(url: str) -> int:
    with Holdfast(url, telemetry=Hub(), background=False) as hold:
        return hold.letters.count()


def process(url: str, story: str) -> int:
    return subprocess.run([sys.executable, "-c", FAILS + story, url], timeout=PATIENCE_S, check=False).returncode


@pytest.mark.parametrize("end", ["", "sys.exit(3)", "raise RuntimeError"])
def test_a_process_that_ends_in_good_order_loses_nothing(tmp_path: Path, end: str) -> None:
    url = f"sqlite:///{tmp_path / 'shop.db'}"
    process(url, f"for _ in range(30): pay.run(lambda: 1 / 0)\n{end}")
    assert count(url) == 30


def test_what_fails_while_the_interpreter_ends_is_written_at_once(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'shop.db'}"
    assert process(url, "import atexit; atexit.register(pay.run, lambda: 1 / 0)") == 0
    assert count(url) == 1


def test_a_thread_that_goes_on_failing_does_not_hold_up_the_end(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'shop.db'}"
    story = """
import threading
begun = threading.Event()
def fail():
    while True:
        pay.run(lambda: 1 / 0)
        begun.set()
threading.Thread(target=fail, daemon=True).start()
begun.wait()
"""
    process(url, story)
    assert count(url) >= 1


def test_a_killed_process_has_lost_only_what_waited(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'shop.db'}"
    story = """
pay.run(lambda: 1 / 0)
hold.letters.box.flush()
hold.letters.box.buffer._delay = 600.0
pay.run(lambda: 1 / 0)
os.kill(os.getpid(), signal.SIGKILL)
"""
    assert process(url, story) == -signal.SIGKILL
    assert count(url) in (1, 2)  # the thread may have been between two looks


def test_a_forked_child_writes_its_own_and_leaves_the_rest_to_its_parent(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'shop.db'}"
    story = """
hold.letters.box.buffer._delay = 600.0
def fail(): raise OSError("parent" if os.getpid() == parent else "child")
parent = os.getpid()
for _ in range(3): pay.run(fail)
child = os.fork()
if child == 0:
    assert len(hold.letters.box.buffer) == 0
    pay.run(fail)
    hold.letters.box.flush()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
hold.close()
"""
    assert process(url, story) == 0
    with Holdfast(url, telemetry=Hub(), background=False) as hold:
        told = sorted(letter.error_message for letter in hold.letters.find())
    assert told == ["OSError: child", *["OSError: parent"] * 3]


def fail_once(url: str) -> None:
    Holdfast(url).guard("payments", dead_letter=DeadLetter(buffered=True)).run(lambda: 1 / 0)


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_a_worker_process_of_multiprocessing_loses_nothing(tmp_path: Path, method: str) -> None:
    url = f"sqlite:///{tmp_path / 'shop.db'}"
    worker = multiprocessing.get_context(method).Process(target=fail_once, args=(url,))
    worker.start()
    worker.join(PATIENCE_S)
    assert (worker.exitcode, count(url)) == (0, 1)


def test_buffered_says_yes_or_no() -> None:
    with pytest.raises(PolicyError, match="buffered must be True or False, got 100"):
        DeadLetter(buffered=100)  # type: ignore[arg-type]  # what a user may get wrong


def test_a_guard_says_that_its_letters_are_written_in_batches(hold: Holdfast) -> None:
    guard = hold.guard("payments", dead_letter=DeadLetter(buffered=True))
    assert "kept as payments, written in batches" in str(guard.describe())


def test_a_buffered_letter_is_written_without_being_asked_for(hold: Holdfast) -> None:
    written = threading.Event()
    hold.telemetry.register(lambda event: written.set() if isinstance(event, LetterKept) else None)
    hold.guard("payments", dead_letter=DeadLetter(buffered=True)).run(lambda: 1 / 0)
    assert written.wait(PATIENCE_S)
    assert hold.letters.count() == 1
