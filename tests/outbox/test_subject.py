"""Subjects, and the canonical text of composite ones."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.outbox.subject import CompositeSubjectId, Correction, PiiCategory, SubjectRef

VALUES = st.lists(st.text(alphabet="ab\x1b\x1f", min_size=1, max_size=6), min_size=1, max_size=4).map(tuple)


@given(VALUES)
def test_a_canonical_text_gives_the_values_back(values: tuple[str, ...]) -> None:
    composite = CompositeSubjectId(values=values)
    assert CompositeSubjectId.parse_canonical(composite.canonical) == composite


@given(VALUES, VALUES)
def test_different_composites_have_different_texts(one: tuple[str, ...], other: tuple[str, ...]) -> None:
    same = CompositeSubjectId(values=one).canonical == CompositeSubjectId(values=other).canonical
    assert same == (one == other)


def test_elements_are_joined_by_a_separator_and_escaped() -> None:
    assert CompositeSubjectId(values=("a\x1fb", "c\x1bd")).canonical == "a\x1b\x1fb\x1fc\x1b\x1bd"


@pytest.mark.parametrize("values", [(), ("",), ("a", "")])
def test_a_composite_has_at_least_one_value_and_none_is_empty(values: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="values"):
        CompositeSubjectId(values=values)


@pytest.mark.parametrize("text", ["a\x1b", "\x1bx", "a\x1f", ""])
def test_a_text_that_no_composite_has_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"canonical|values"):
        CompositeSubjectId.parse_canonical(text)


def test_kind_and_value_of_a_ref_have_1_to_255_characters() -> None:
    for bad in ("", "x" * 256):
        with pytest.raises(ValueError, match="kind"):
            SubjectRef(kind=bad, value="v")
        with pytest.raises(ValueError, match="value"):
            SubjectRef(kind="k", value=bad)


def test_extra_must_be_json() -> None:
    with pytest.raises(ValueError, match="extra"):
        SubjectRef(kind="k", value="v", extra={"x": object()})


def test_a_correction_has_a_known_category() -> None:
    assert Correction(category="contact", value=True).value is True  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="category"):
        Correction(category="horoscope", value="lion")  # type: ignore[arg-type]
    assert len(PiiCategory) == 8
