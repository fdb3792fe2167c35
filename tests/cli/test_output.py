"""What is printed: tables that fit, JSON that is stable, and nothing that steers a terminal."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone

import click
import pytest

from holdfast.cli.output import Column, Prose, document, facts, table
from holdfast.cli.times import MOMENT, span
from holdfast.views.letters import user_of
from holdfast.views.plain import iso, masked

COLUMNS = (Column("id"), Column("number", right=True), Column("text", gives=True))


def test_a_table_fits_the_terminal_and_says_where_it_was_cut(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    table(COLUMNS, [("a1", 5, "short"), ("a2", 1234567, "a text that is far too long")])
    assert capsys.readouterr().out.splitlines() == [
        "ID   NUMBER  TEXT",
        "a1        5  short",
        "a2  1234567  a text that is f…",
    ]


def test_in_a_pipe_nothing_is_cut(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    table(COLUMNS, [("a1", 5, "x" * 300)])
    assert capsys.readouterr().out.splitlines()[1] == "a1       5  " + "x" * 300


def test_what_is_optional_goes_where_no_column_can_give(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    table((Column("name", gives=True), Column("run", optional=True), Column("n")), [("abc", "0123456789abcdef", 1)])
    assert capsys.readouterr().out.splitlines() == ["NAME  N", "abc   1"]


def test_a_last_column_that_wraps_goes_on_below_itself_and_is_not_cut(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "24")
    columns = (Column("no", right=True), Column("facts", gives=True, wraps=True))
    table(columns, [(1, "error: the bank is away for a while"), (2, ""), (3, "x" * 30)])
    assert capsys.readouterr().out.splitlines() == [
        "NO  FACTS",
        " 1  error: the bank is",
        "    away for a while",
        " 2",
        " 3  " + "x" * 19 + "…",
    ]


def test_wide_characters_take_two_places(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    table((Column("text", gives=True), Column("n")), [("支払いに失敗しました", 1), ("abc", 2)])
    assert capsys.readouterr().out.splitlines() == [
        "TEXT               N",
        "支払いに失敗しま…  1",
        "abc                2",
    ]


def test_a_list_of_names_goes_on_below_itself_and_cuts_none(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ("charge", "erase", "x" * 30, "publish\x1b", "支払い", "rectify")
    monkeypatch.setenv("COLUMNS", "30")
    facts([("operations", names), ("errors", ())])
    assert capsys.readouterr().out.splitlines() == [
        "operations  charge, erase,",
        "            " + "x" * 30 + ",",
        "            publish\\x1b,",
        "            支払い, rectify",
    ]
    monkeypatch.delenv("COLUMNS")
    facts([("operations", names)])
    assert capsys.readouterr().out == f"operations  charge, erase, {'x' * 30}, publish\\x1b, 支払い, rectify\n"


def test_sentences_go_on_below_themselves_between_words(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = Prose("may be called again, with the same key\x1b, which is honoured")
    monkeypatch.setenv("COLUMNS", "26")
    facts([("so", text)])
    assert capsys.readouterr().out.splitlines() == [
        "so  may be called again,",
        "    with the same key\\x1b,",
        "    which is honoured",
    ]
    monkeypatch.delenv("COLUMNS")
    facts([("so", text)])
    assert capsys.readouterr().out == "so  may be called again, with the same key\\x1b, which is honoured\n"


def test_stored_control_characters_are_shown_and_not_sent(capsys: pytest.CaptureFixture[str]) -> None:
    evil = "red\x1b[31m\x07 \x9b2J \u202eback\nnext"
    table((Column("text"),), [(evil,)])
    facts([("text", evil)])
    document({"text": evil})
    out = capsys.readouterr().out
    assert not set(out) & set("\x1b\x07\x9b\u202e")
    assert "red\\x1b[31m\\x07 \\x9b2J" in out
    assert json.loads(out[out.index("{") :]) == {"text": evil}


def test_json_has_times_in_utc_and_of_one_width(capsys: pytest.CaptureFixture[str]) -> None:
    at = datetime(2026, 1, 31, 12, tzinfo=timezone(timedelta(hours=2)))
    document({"at": at})
    assert json.loads(capsys.readouterr().out) == {"at": "2026-01-31T10:00:00.000000Z"}


def test_what_secret_keys_name_is_masked_at_any_depth() -> None:
    data = {"card": {"api_key": "k", "last4": "42"}, "list": [{"password": "p"}], "token": None}
    assert masked(data) == {"card": {"api_key": "***", "last4": "42"}, "list": [{"password": "***"}], "token": None}


def test_empty_facts_are_left_out_and_zero_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    facts([("a", ""), ("b", None), ("c", 0), ("d", "x")])
    assert capsys.readouterr().out == "c  0\nd  x\n"


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("2026-01-31", datetime(2026, 1, 31, tzinfo=UTC)),
        ("2026-01-31T12:30", datetime(2026, 1, 31, 12, 30, tzinfo=UTC)),
        ("2026-01-31T12:30:00+02:00", datetime(2026, 1, 31, 10, 30, tzinfo=UTC)),
    ],
)
def test_a_time_without_an_offset_is_utc(text: str, meant: datetime) -> None:
    assert MOMENT.convert(text, None, None) == meant
    assert iso(meant).endswith("Z")


def test_a_time_may_be_how_long_ago_it_was() -> None:
    two_hours_ago = datetime.now(UTC) - timedelta(hours=2)
    assert abs(MOMENT.convert("2h", None, None) - two_hours_ago) < timedelta(seconds=5)


@pytest.mark.parametrize("text", ["yesterday", "2y", "", "99999999999999999d"])
def test_what_is_no_time_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(click.UsageError, match="is no time; write"):
        MOMENT.convert(text, None, None)


@pytest.mark.parametrize(
    ("seconds", "shown"), [(-5, "0s"), (119, "119s"), (120, "2m"), (7199, "119m"), (86400, "24h"), (40_000_000, "462d")]
)
def test_a_span_is_shown_in_a_unit_of_which_there_are_two(seconds: float, shown: str) -> None:
    assert span(timedelta(seconds=seconds)) == shown


def test_a_user_of_digits_is_a_number_unless_quoted() -> None:
    assert [user_of("7"), user_of('"7"'), user_of("-1"), user_of("ann"), user_of('"')] == [7, "7", -1, "ann", '"']
