"""Who is next when more is asked for than can be done."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.server.lines import FADES_S, Lines


def called(lines: Lines[str], now: float = 0.0) -> list[str]:
    """Everybody, in the order in which they are called; each has a second."""
    found: list[str] = []
    while (one := lines.call(now)) is not None:
        found.append(one)
        lines.charge(one[0], 1.0, now)
    return found


def test_callers_take_turns_however_many_one_of_them_has_sent() -> None:
    lines: Lines[str] = Lines(10)
    for one in ("a1", "a2", "a3", "b1", "c1", "c2"):
        assert lines.enter(one[0], one) is None
    assert called(lines) == ["a1", "b1", "c1", "a2", "c2", "a3"]
    assert len(lines) == 0


def test_who_has_had_much_is_after_all_others_until_that_is_long_ago() -> None:
    lines: Lines[str] = Lines(10)
    lines.charge("a", 5.0, 0.0)
    lines.charge("b", 1.0, 0.0)
    for one in ("a1", "b1"):
        lines.enter(one[0], one)
    assert lines.call(0.0) == "b1"
    lines.charge("b", 1.0, 10 * FADES_S)
    lines.enter("b", "b2")
    assert lines.call(10 * FADES_S) == "a1"


def test_when_all_places_are_taken_the_last_of_the_longest_line_goes() -> None:
    lines: Lines[str] = Lines(3)
    for one in ("a1", "a2", "a3"):
        lines.enter("a", one)
    assert lines.enter("a", "a4") == "a4"
    assert lines.enter("b", "b1") == "a3"
    assert lines.enter("b", "b2") == "b2"  # no line is longer than theirs would be
    assert called(lines) == ["a1", "b1", "a2"]


def test_without_places_nobody_waits() -> None:
    lines: Lines[str] = Lines(0)
    assert lines.enter("a", "a1") == "a1"
    assert lines.call(0.0) is None


def test_who_leaves_is_not_called() -> None:
    lines: Lines[str] = Lines(3)
    for one in ("a1", "a2"):
        lines.enter("a", one)
    lines.leave("a", "a1")
    lines.leave("a", "a1")
    lines.leave("b", "b1")
    assert (len(lines), called(lines)) == (1, ["a2"])


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from(("enter", "call", "leave"))), max_size=60))
def test_everybody_who_enters_is_called_or_leaves_or_has_to_go(steps: list[tuple[str, str]]) -> None:
    lines: Lines[str] = Lines(4)
    inside: set[str] = set()
    for at, (caller, what) in enumerate(steps):
        one = f"{caller}{at}"
        if what == "enter":
            inside.add(one)
            inside.discard(lines.enter(caller, one) or "")
        elif what == "call":
            inside.discard(lines.call(float(at)) or "")
        elif inside:
            gone = min(inside)
            lines.leave(gone[0], gone)
            inside.discard(gone)
        assert len(lines) == len(inside) <= 4
    assert set(called(lines)) == inside
