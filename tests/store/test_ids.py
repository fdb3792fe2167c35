"""Ids: of one width, in the order of their making, and nobody else's."""

from __future__ import annotations

import os
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.store.ids import WIDTH, new_record_id, record_ids
from holdfast.testing.store.threads import at_once

NOW = 1_767_225_600_000_000


@given(st.lists(st.integers(0, 2**53), min_size=1))
def test_ids_ascend_in_the_order_of_their_making_whatever_the_clock_does(times: list[int]) -> None:
    new_id = record_ids()
    ids = [new_id(now) for now in times]
    assert ids == sorted(set(ids))
    assert {len(id) for id in ids} == {WIDTH}


def test_an_id_begins_with_its_time() -> None:
    new_id = record_ids()
    assert int(new_id(NOW)[:14], 16) == NOW
    assert int(new_id(NOW)[:14], 16) == NOW + 1
    assert int(new_id(NOW - 10**9)[:14], 16) == NOW + 2


def test_two_sources_make_different_ids_at_the_same_moment() -> None:
    first, second = record_ids(), record_ids()
    assert first(NOW) != second(NOW)


def test_ids_are_plain_lower_case_hexadecimal() -> None:
    assert set(record_ids()(NOW)) <= set("0123456789abcdef")


def test_threads_never_get_the_same_id() -> None:
    new_id = record_ids()
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        lists = at_once([lambda: [new_id(NOW) for _ in range(2000)]] * 8)
    finally:
        sys.setswitchinterval(before)
    assert all(ids == sorted(ids) for ids in lists)
    assert len({id for ids in lists for id in ids}) == 16_000


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("new_id", [record_ids(), new_record_id], ids=["own", "shared"])
def test_a_forked_process_makes_ids_of_its_own(new_id: object) -> None:
    assert callable(new_id)
    new_id(NOW)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, new_id(NOW + 5).encode())
        os._exit(0)
    os.waitpid(child, 0)
    theirs = os.read(reader, 100).decode()
    os.close(reader)
    os.close(writer)
    ours = new_id(NOW + 5)
    assert len(theirs) == WIDTH
    assert theirs[:14] == ours[:14]
    assert theirs != ours
