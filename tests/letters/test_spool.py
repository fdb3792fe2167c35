"""The file for letters that the store could not take."""

import multiprocessing
import os
from pathlib import Path
from typing import Any

import pytest

from holdfast.letters.spool import Spool


def test_what_was_appended_is_handed_back_once_and_in_order(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "deep" / "spool.jsonl")
    assert not spool
    for number in range(3):
        spool.append({"n": number})
    assert spool
    read: list[Any] = []
    assert spool.ingest(read.append) == 3
    assert read == [{"n": 0}, {"n": 1}, {"n": 2}]
    assert not spool
    assert spool.ingest(read.append) == 0


def test_a_store_that_is_still_away_costs_nothing(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool.jsonl")
    spool.append({"n": 1})

    def away(entry: dict[str, Any]) -> None:
        raise ConnectionError("still away")

    with pytest.raises(ConnectionError):
        spool.ingest(away)
    spool.append({"n": 2})
    read: list[Any] = []
    assert spool.ingest(read.append) == 2
    assert sorted(entry["n"] for entry in read) == [1, 2]


def test_a_line_that_is_no_letter_is_kept_aside(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool.jsonl")
    spool.append({"n": 1})
    with spool.path.open("a") as file:
        file.write("half a li\n")
        file.write('{"schema": 99, "entry": {}}\n')
    read: list[Any] = []
    assert spool.ingest(read.append) == 1
    assert (tmp_path / "spool.jsonl.bad").read_text() == 'half a li\n{"schema": 99, "entry": {}}\n'


@pytest.mark.parametrize("odd", ["\u2028", "\u2029", "\x85", "\x0b", "\x1c", "\r\n"])
def test_what_looks_like_the_end_of_a_line_to_some_is_part_of_a_letter(tmp_path: Path, odd: str) -> None:
    spool = Spool(tmp_path / "spool.jsonl")
    spool.append({"error": f"a{odd}b"})
    read: list[Any] = []
    assert spool.ingest(read.append) == 1
    assert read == [{"error": f"a{odd}b"}]


def test_a_letter_that_the_store_will_never_take_does_not_hold_up_the_others(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool.jsonl")
    for number in range(3):
        spool.append({"n": number})
    read: list[Any] = []

    def put(entry: dict[str, Any]) -> None:
        if entry["n"] == 1:
            raise ValueError("a searched text has at most 191")
        read.append(entry["n"])

    assert spool.ingest(put) == 2
    assert read == [0, 2]
    assert not spool
    assert '"n":1' in (tmp_path / "spool.jsonl.bad").read_text()


def test_what_a_dying_process_left_of_a_line_costs_only_that_line(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool.jsonl")
    spool.append({"n": 1})
    with spool.path.open("ab") as file:
        file.write('{"schema":1,"entry":{"n":"é'.encode()[:-1])
    spool.append({"n": 2})
    read: list[Any] = []
    assert spool.ingest(read.append) == 2
    assert read == [{"n": 1}, {"n": 2}]
    assert not spool


def test_a_letter_that_is_through_is_not_handed_over_again(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool.jsonl")
    for number in range(3):
        spool.append({"n": number})
    read: list[int] = []

    def put(entry: dict[str, Any]) -> None:
        if len(read) == 2 and away:
            raise ConnectionError("away again")
        read.append(entry["n"])

    away = True
    with pytest.raises(ConnectionError):
        spool.ingest(put)
    away = False
    assert Spool(spool.path).ingest(put) == 1
    assert read == [0, 1, 2]


def test_two_that_read_at_once_do_not_hand_over_the_same_letter(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool.jsonl")
    for number in range(3):
        spool.append({"n": number})
    read: list[int] = []

    def put(entry: dict[str, Any]) -> None:
        read.append(entry["n"])
        spool.ingest(put)
        Spool(spool.path).ingest(put)

    spool.ingest(put)
    assert read == [0, 1, 2]


def test_a_disk_that_takes_half_a_line_takes_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spool = Spool(tmp_path / "spool.jsonl")
    spool.append({"n": 1})
    write = os.write
    monkeypatch.setattr(os, "write", lambda handle, line: write(handle, line[:5]))
    with pytest.raises(OSError, match="only 5 of"):
        spool.append({"n": 2})
    monkeypatch.undo()
    spool.append({"n": 3})
    read: list[Any] = []
    assert spool.ingest(read.append) == 2
    assert read == [{"n": 1}, {"n": 3}]


def _append_many(path: Path, writer: int) -> None:
    spool = Spool(path)
    for number in range(100):
        spool.append({"writer": writer, "n": number})


def test_processes_that_append_while_another_one_reads_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "spool.jsonl"
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_append_many, args=(path, number)) for number in range(3)]
    for process in writers:
        process.start()
    read: list[Any] = []
    spool = Spool(path)
    while any(process.is_alive() for process in writers):
        spool.ingest(read.append)
    spool.ingest(read.append)
    assert sorted((entry["writer"], entry["n"]) for entry in read) == [(w, n) for w in range(3) for n in range(100)]
