"""What is looked after now and then: each part once in its time, and never all together after the first one."""

from __future__ import annotations

import pytest

from holdfast.errors import StoreUnavailable
from holdfast.workflows.rounds import Part, Rounds

done: list[str] = []


@pytest.fixture(autouse=True)
def nothing_done() -> None:
    done.clear()


def part(name: str, freed: int = 0) -> Part:
    def do() -> int:
        done.append(name)
        return freed

    return do


def test_all_parts_are_done_at_first_and_then_one_by_one_each_once_in_its_time() -> None:
    rounds = Rounds(*map(part, "abcd"), every_s=60.0)
    seen: dict[int, str] = {}
    for second in range(121):
        rounds.do_due(1000.0 + second)
        if done:
            seen[second] = "".join(done)
            done.clear()
    assert seen == {0: "abcd", 15: "a", 30: "b", 45: "c", 60: "d", 75: "a", 90: "b", 105: "c", 120: "d"}


def test_whoever_looks_late_does_all_that_is_due_once_and_keeps_the_turns() -> None:
    rounds = Rounds(part("a", 1), part("b", 2), every_s=60.0)
    assert rounds.do_due(0.0) == 3
    assert rounds.do_due(500.0) == 3
    assert rounds.do_due(500.0) == 0
    assert done == ["a", "b", "a", "b"]
    assert rounds.do_due(510.0) == 1  # at 30, 90, … 510
    assert rounds.do_due(540.0) == 2


def test_a_part_that_fails_is_due_again_in_its_turn_and_the_others_at_the_next_look() -> None:
    def fails() -> int:
        raise StoreUnavailable("away")

    rounds = Rounds(fails, part("b"), every_s=60.0)
    with pytest.raises(StoreUnavailable):
        rounds.do_due(0.0)
    assert done == []
    assert rounds.do_due(1.0) == 0
    assert done == ["b"]
