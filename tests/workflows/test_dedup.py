"""The Bloom filter over message ids."""

from __future__ import annotations

import gc
import math
import subprocess
import sys
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.workflows.dedup import BloomDeduplicator, DeduplicatorHolder
from holdfast.workflows.default import Default


class CountingBits(bytearray):
    """Bits that count how often they are read."""

    reads = 0

    def __getitem__(self, index: Any) -> Any:
        self.reads += 1
        return super().__getitem__(index)

    def __iter__(self) -> Any:
        self.reads += len(self)
        return super().__iter__()


@given(st.lists(st.text(max_size=40)), st.integers(1, 50), st.floats(0.0001, 0.9))
def test_what_was_marked_is_always_perhaps_seen(ids: list[str], items: int, rate: float) -> None:
    dedup = BloomDeduplicator(items, rate)
    for message_id in ids:
        dedup.mark_seen(message_id)
    assert all(dedup.maybe_seen(message_id) for message_id in ids)
    assert dedup.items_added == len(ids)
    assert dedup.fill_ratio * 8 * dedup.size_bytes >= dedup.fill_ratio > 0 or not ids


@given(st.lists(st.text(max_size=10)), st.integers(1, 200))
def test_the_fill_ratio_is_the_share_of_set_bits(ids: list[str], items: int) -> None:
    dedup = BloomDeduplicator(items, 0.01)
    for message_id in ids:
        dedup.mark_seen(message_id)
    set_bits = sum(byte.bit_count() for byte in dedup._bits)
    assert dedup.fill_ratio == set_bits / math.ceil(-items * math.log(0.01) / math.log(2) ** 2)


def test_nothing_is_seen_before_it_is_marked() -> None:
    dedup = BloomDeduplicator()
    assert not dedup.maybe_seen("a")
    dedup.mark_seen("a")
    assert dedup.maybe_seen("a")
    assert not dedup.maybe_seen("b")


def test_the_size_follows_from_items_and_rate() -> None:
    dedup = BloomDeduplicator(expected_items=100_000, false_positive_rate=0.001)
    assert dedup.size_bytes == math.ceil(1_437_759 / 8)
    assert dedup._hashes == 10


def test_at_its_expected_items_it_is_half_full_and_as_precise_as_promised() -> None:
    dedup = BloomDeduplicator(5_000, 0.01)
    for n in range(5_000):
        dedup.mark_seen(f"seen-{n}")
    assert 0.48 < dedup.fill_ratio < 0.53
    assert not dedup.should_reset()
    assert dedup.estimated_false_positive_rate == pytest.approx(0.01, rel=0.3)
    wrong = sum(dedup.maybe_seen(f"other-{n}") for n in range(20_000))
    assert wrong < 20_000 * 0.015


def test_it_should_be_reset_at_some_1_7_times_its_items() -> None:
    dedup = BloomDeduplicator(1_000, 0.001)
    for n in range(1_600):
        dedup.mark_seen(str(n))
    assert not dedup.should_reset()
    for n in range(1_600, 1_900):
        dedup.mark_seen(str(n))
    assert dedup.should_reset()
    assert not dedup.should_reset(threshold=0.9)


def test_health_figures_do_not_look_at_the_bits() -> None:
    dedup = BloomDeduplicator(10_000)
    dedup._bits = bits = CountingBits(dedup._bits)
    dedup.mark_seen("a")
    reads = bits.reads
    assert 0 < reads <= 20
    assert (dedup.fill_ratio, dedup.should_reset(), dedup.items_added) == (10 / dedup._size, False, 1)
    assert dedup.estimated_false_positive_rate > 0
    assert bits.reads == reads


def test_an_id_that_is_marked_again_fills_nothing() -> None:
    dedup = BloomDeduplicator(100)
    dedup.mark_seen("a")
    full = dedup.fill_ratio
    dedup.mark_seen("a")
    assert (dedup.fill_ratio, dedup.items_added) == (full, 2)


def test_a_reset_forgets_everything() -> None:
    dedup = BloomDeduplicator(100)
    size = dedup.size_bytes
    dedup.mark_seen("a")
    dedup.reset()
    assert not dedup.maybe_seen("a")
    assert (dedup.fill_ratio, dedup.items_added, dedup.size_bytes) == (0.0, 0, size)
    assert dedup.estimated_false_positive_rate == 0.0


def test_threads_that_mark_together_lose_nothing() -> None:
    dedup = BloomDeduplicator(4_000, 0.001)
    start = threading.Barrier(4)

    def mark(worker: int) -> None:
        start.wait()
        for n in range(1_000):
            dedup.mark_seen(f"{worker}-{n}")

    threads = [threading.Thread(target=mark, args=(worker,)) for worker in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(dedup.maybe_seen(f"{worker}-{n}") for worker in range(4) for n in range(1_000))
    assert dedup.items_added == 4_000
    assert dedup.fill_ratio == sum(byte.bit_count() for byte in dedup._bits) / dedup._size


@pytest.mark.parametrize("items", [0, -1, 1.5, "9", True, None, 10**15])
def test_impossible_numbers_of_items_are_refused(items: Any) -> None:
    with pytest.raises(ValueError, match=r"BloomDeduplicator.* items|expected_items"):
        BloomDeduplicator(items)


@pytest.mark.parametrize("rate", [0, 1, -0.1, 1.1, math.nan, math.inf, "0.1", True, None])
def test_impossible_rates_are_refused(rate: Any) -> None:
    with pytest.raises(ValueError, match="false_positive_rate must be above 0 and below 1"):
        BloomDeduplicator(10, rate)


@pytest.mark.parametrize("threshold", [-0.1, 1.1, math.nan])
def test_an_impossible_threshold_is_refused(threshold: float) -> None:
    with pytest.raises(ValueError, match="threshold"):
        BloomDeduplicator(10).should_reset(threshold)


def test_engines_do_not_share_what_they_have_seen() -> None:
    first, second = DeduplicatorHolder(), DeduplicatorHolder()
    first.get(1_000, 0.01).mark_seen("a")
    assert not second.get(500).maybe_seen("a")
    assert second.get().expected_items == 500
    assert first.get() is first.get(expected_items=1_000) is first.get(false_positive_rate=0.01)


@pytest.mark.parametrize("asked", [{"expected_items": 2_000}, {"false_positive_rate": 0.5}])
def test_parameters_that_contradict_the_existing_one_are_refused(asked: dict[str, Any]) -> None:
    holder = DeduplicatorHolder()
    holder.get(1_000, 0.01)
    with pytest.raises(ValueError, match=next(iter(asked))):
        holder.get(**asked)


def test_bad_parameters_leave_nothing_behind() -> None:
    holder = DeduplicatorHolder()
    with pytest.raises(ValueError, match="expected_items"):
        holder.get(0)
    assert holder.get().expected_items == 100_000


IN_A_FRESH_PROGRAM = """
from holdfast.backends.memory import MemoryStore
from holdfast.workflows.dedup import get_deduplicator
from holdfast.workflows.workflows import Workflows

before = get_deduplicator(expected_items=1000)
assert get_deduplicator() is before
first, second = Workflows(MemoryStore()), Workflows(MemoryStore())
assert get_deduplicator() is first.deduplicator is not second.deduplicator
assert get_deduplicator().expected_items == 100_000
get_deduplicator().mark_seen("m-1")
assert not second.deduplicator.maybe_seen("m-1") and not before.maybe_seen("m-1")
try:
    get_deduplicator(5)
except ValueError as error:
    assert "the deduplicator has expected_items=100000, got 5" in str(error)
else:
    raise AssertionError
"""


def test_the_default_is_that_of_the_first_engine_and_no_engine_marks_what_another_has_seen() -> None:
    subprocess.run([sys.executable, "-c", IN_A_FRESH_PROGRAM], check=True, timeout=60)


def test_an_engine_that_is_gone_makes_room_for_the_next_one() -> None:
    default = Default(DeduplicatorHolder)
    alone, first, second = default.get(), DeduplicatorHolder(), DeduplicatorHolder()
    default.offer(first)
    default.offer(second)
    assert default.get() is first
    del first
    gc.collect()
    assert default.get() is alone
    default.offer(second)
    assert default.get() is second
