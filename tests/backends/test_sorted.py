"""The sorted list of keys against a plain sorted list."""

from __future__ import annotations

import random
from itertools import islice

from hypothesis import given
from hypothesis import strategies as st

from holdfast.backends import sorted as module
from holdfast.backends.sorted import Key, SortedKeys

KEYS = st.tuples(st.integers(0, 6), st.sampled_from("abc"))


def check(keys: SortedKeys, expected: list[Key], after: Key) -> None:
    assert list(keys.ascending()) == expected
    assert list(keys.descending()) == expected[::-1]
    assert list(keys.ascending(after)) == [key for key in expected if key > after]
    assert list(keys.descending(after)) == [key for key in expected if key < after][::-1]
    assert bool(keys) is bool(expected)


@given(st.lists(st.tuples(st.booleans(), KEYS)), KEYS)
def test_a_few_keys_are_in_order_whatever_came_and_went(steps: list[tuple[bool, Key]], after: Key) -> None:
    keys, model = SortedKeys(), set[Key]()
    for add, key in steps:
        if add and key not in model:
            keys.add(key)
            model.add(key)
        elif not add:
            keys.discard(key)
            model.discard(key)
    check(keys, sorted(model), after)


def test_many_keys_are_in_order_whatever_came_and_went() -> None:
    for seed in range(6):
        rng = random.Random(seed)
        keys, model = SortedKeys(), set[Key]()
        span = rng.choice((10, 1000, 100_000))
        for step in range(6 * module._FULL):
            # First mostly growing, so that chunks split; then mostly shrinking, so that they empty.
            key = (rng.randrange(span), f"{rng.randrange(9)}")
            if rng.random() < (0.9 if step < 4 * module._FULL else 0.1):
                if key not in model:
                    keys.add(key)
                    model.add(key)
            else:
                gone = key if rng.random() < 0.2 or not model else next(iter(model))
                keys.discard(gone)
                model.discard(gone)
        for after in ((-1, ""), (span, ""), *rng.sample(sorted(model), min(20, len(model)))):
            check(keys, sorted(model), after)


def test_ascending_descending_and_equal_values_are_kept_in_order() -> None:
    numbers = range(3 * module._FULL)
    for order in (numbers, reversed(numbers)):
        keys = SortedKeys()
        for n in order:
            keys.add((0, f"{n:06}"))
        assert [id for _, id in keys.ascending()] == [f"{n:06}" for n in numbers]
        assert [id for _, id in islice(keys.descending((0, "000100")), 2)] == ["000099", "000098"]


def test_an_empty_list_has_nothing_either_way() -> None:
    keys = SortedKeys()
    keys.discard((1, "a"))
    check(keys, [], (1, "a"))
