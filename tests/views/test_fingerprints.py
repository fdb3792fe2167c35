"""Errors that are the same but for the numbers and names in them."""

from __future__ import annotations

import pytest

from holdfast.views.fingerprints import normalised


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("ConnectionError: refused", "ConnectionError: refused"),
        ("order o17 failed after 30.5s", "order <id> failed after <n>"),
        ("no answer from 10.0.0.1:8080 in 250ms", "no answer from <address> in <n>"),
        ("row 3f2a8b9c0d is locked since 2026-01-31T12:00:00.5Z", "row <hex> is locked since <time>"),
        ("request 123e4567-e89b-12d3-a456-426614174000 was lost", "request <id> was lost"),
        ("HTTP 503 from /orders/812", "HTTP 503 from /orders/<n>"),
        ("HTTP 404 from /orders/813", "HTTP 404 from /orders/<n>"),
        ("-5 of 1,000 %", "<n> of <n> %"),
        ("two\n  lines\tand\u00a0spaces", "two lines and spaces"),
        ("", ""),
    ],
)
def test_what_differs_from_one_failure_to_the_next_has_a_placeholder(message: str, shown: str) -> None:
    assert normalised(message) == shown


def test_a_long_message_is_cut_so_that_grouping_stays_cheap() -> None:
    assert len(normalised("x " * 10_000)) <= 300
