"""Everything at a glance, in a terminal."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from holdfast.app import Holdfast
from holdfast.cli.dashboard import LOOK_BACK_S, Course, changes, frame
from holdfast.cli.exits import ExitCode
from tests.cli.conftest import Run, lines
from tests.cli.served import served
from tests.cli.test_terminal import in_terminal
from tests.stores import SHARED_STORES, make_url

Answer = Callable[..., Any]
NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)


def seen(**parts: Any) -> dict[str, Any]:
    """An overview in which nothing is wrong, but for what is said."""
    return {
        "at": NOW, "store": "sqlite:///shop.db", "events": [],
        "headline": {"tone": "calm", "text": "Everything is closed and drained.", "parts": []},
        "breakers": {"by_state": {"closed": 1}, "pinned": 0, "items": []},
        "letters": {"by_status": {}, "domains": [], "more_domains": 0, "oldest_age_s": None},
        "outbox": {"by_status": {"pending": 0}, "by_queue": {}, "oldest_due_at": None, "lag_s": 0.0, "paused": []},
        "sagas": {"by_state": {}}, "workflows": {"by_status": {}, "stranded": 0},
        "workers": {"alive": 0, "by_state": {}}, "bulk": {"active": 0}, **parts,
    }  # fmt: skip


def letters(pending: int, **more: Any) -> dict[str, Any]:
    return {"by_status": {"pending": pending}, "domains": [], "more_domains": 0, "oldest_age_s": None, **more}


def drawn(figures: dict[str, Any], course: Course | None = None, width: int = 80, **options: Any) -> list[str]:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    shown = console.render_lines(frame(figures, course or Course(), **options), pad=False)
    return ["".join(segment.text for segment in line).rstrip() for line in shown]


def breaker(name: str, state: str, **more: Any) -> dict[str, Any]:
    return {
        "name": name, "state": state, "since": NOW - timedelta(seconds=12), "pinned": False, "by": None, "reason": "",
        "until": None, "shared": True, **more,
    }  # fmt: skip


def test_once_it_is_printed_and_that_is_all(run: Run, hold: Holdfast, filed: Callable[..., str]) -> None:
    for _ in range(2):
        filed()
    run("breakers", "force-open", "payments", "--reason", "provider is down", "--by", "ann")
    said = lines(run("top", "--once"))
    assert re.fullmatch(r"Holdfast  \d\d:\d\d:\d\d UTC  sqlite:///.*", said[0])
    assert "has been open for 0 s and held so by an operator, 2 letters wait" in said[1]
    assert said[3] == "breakers   1 open   0 half open   0 closed"
    assert said[4].startswith("  payments                      open  for 0s  held by ann, 89m left: provider")
    assert said[5] == "letters    2 pending   0 replaying   0 requires review   0 resolved"
    assert said[6] == "  payments                             2 wait  the oldest for 0s"
    assert said[7].startswith("outbox     0 pending")
    assert said[8:] == ["workflows  0 running   0 succeeded   0 terminal", "workers    0 alive"]


def test_without_a_terminal_it_is_printed_once_and_nothing_is_cut(run: Run, hold: Holdfast) -> None:
    run("breakers", "force-open", "payments", "--reason", "x" * 200)
    assert "x" * 200 in run("top", env={"COLUMNS": None}).stdout


@pytest.mark.parametrize("name", SHARED_STORES)
def test_json_is_one_document_on_every_store(run: Run, answer: Answer, tmp_path: Path, name: str) -> None:
    url = make_url(name, tmp_path)
    here: dict[str, str | None] = {"HOLDFAST_URL": url}
    if name in ("postgres", "mariadb"):
        run("db", "upgrade", env=here)
    with Holdfast(url) as hold:
        hold.letters.create("payments", "F")
    found = answer("top", env=here)
    assert found["letters"]["by_status"] == {"pending": 1}
    assert found["letters"]["domains"][0]["domain"] == "payments"
    assert found["headline"]["parts"] == ["1 letter waits"]
    assert (found["outbox"] is None) == (name == "redis")
    assert found["at"].endswith("Z")


def test_a_server_is_asked_for_the_same(run: Run, answer: Answer, hold: Holdfast, filed: Callable[..., str]) -> None:
    filed()
    from_store = answer("top")
    with served(hold) as url:
        from_server = answer("top", env={"HOLDFAST_URL": url})
        assert set(from_store) <= set(from_server)
        assert from_server["letters"]["by_status"] == from_store["letters"]["by_status"] == {"pending": 1}
        assert "1 pending" in run("top", "--url", url).stdout


def test_a_server_or_store_that_is_not_there_is_one_line(run: Run, hold: Holdfast) -> None:
    error = run("top", "--url", "http://127.0.0.1:1", code=ExitCode.NO_STORE).stderr
    assert error.startswith("holdfast: http://127.0.0.1:1 does not answer: ")
    assert "is `holdfast serve` running there?" in error
    run("top", "--url", "redis://127.0.0.1:1/0", code=ExitCode.NO_STORE)


@pytest.mark.parametrize("key", ["q", "\x03"])
def test_in_a_terminal_it_stays_until_a_key_ends_it(
    url: str, hold: Holdfast, filed: Callable[..., str], key: str
) -> None:
    filed()
    shown, code = in_terminal(
        "top", "--url", url, "--every", "0.2", types=[("sorts (by waiting)", "s"), ("sorts (by age)", key)]
    )
    assert code == 0
    assert "1 pending" in shown


def test_a_figure_that_changes_says_how_fast() -> None:
    course = Course()
    for second in range(5):
        course.see(seen(letters=letters(10 * second)), second)
    assert course.rate("letters", "pending") == 10.0
    assert course.rate("letters", "resolved") is None
    assert "letters    40 pending (+10.0/s)   0 replaying" in drawn(seen(letters=letters(40)), course)[4]


def test_what_is_long_ago_does_not_count_for_how_fast() -> None:
    course = Course()
    course.see(seen(letters=letters(0)), 0)
    for second in range(5):
        course.see(seen(letters=letters(1000)), 100 + second)
    course.see(seen(letters=letters(1000)), 101 + LOOK_BACK_S)
    assert course.rate("letters", "pending") is None


def test_changes_are_told_in_words() -> None:
    before = seen(breakers={"by_state": {}, "pinned": 0, "items": [breaker("mail", "half_open")]}, letters=letters(3))
    after = seen(
        breakers={"by_state": {}, "pinned": 0, "items": [breaker("payments", "open", pinned=True)]},
        letters=letters(1), workflows={"by_status": {"TERMINAL": 2}, "stranded": 0},
        workers={"alive": 1, "by_state": {"idle": 1}},
    )  # fmt: skip
    assert changes(before, after) == [
        "breaker payments is open, held by an operator",
        "breaker mail is closed",
        "letter pending: 1 (-2)",
        "workflow terminal: 2 (+2)",
        "workers: 1 alive (+1)",
    ]
    assert changes(after, after) == []
    course = Course()
    course.see(before, 0)
    course.see(after, 1)
    assert drawn(after, course)[-1] == "12:00:00  breaker payments is open, held by an operator"


def test_domains_are_sorted_as_one_likes() -> None:
    domains = [
        {"domain": name, "pending": number, "oldest_at": NOW - timedelta(seconds=age), "oldest_age_s": age}
        for name, number, age in (("stock", 2, 30.0), ("mail", 9, 5.0), ("payments", 4, 600.0))
    ]
    figures = seen(letters=letters(15, domains=domains, more_domains=3))

    def order(sort: str) -> list[str]:
        return [line.split()[0] for line in drawn(figures, sort=sort)[5:8]]

    assert order("waiting") == ["mail", "payments", "stock"]
    assert order("age") == ["payments", "stock", "mail"]
    assert order("name") == ["mail", "payments", "stock"]
    assert "  and 3 more domains" in drawn(figures)


def test_what_a_server_tells_of_is_shown_instead_of_what_was_seen() -> None:
    told = [
        {"event": "letter.replayed", "operation_key": "payments", "outcome": "failed", "at": "2026-01-31T11:59:59Z"}
    ]
    assert drawn(seen(events=told))[-1] == "11:59:59  letter replayed payments outcome=failed"


def test_it_fits_the_terminal_whatever_there_is() -> None:
    items = [breaker(f"b{number}", "open", reason="r" * 300, pinned=True, by="ann") for number in range(60)]
    figures = seen(breakers={"by_state": {"open": 60}, "pinned": 60, "items": items})
    shown = drawn(figures, width=60, height=20)
    assert len(shown) == 20
    assert max(map(len, shown)) <= 60
    assert shown[-1] == "…"


def test_names_and_reasons_cannot_steer_the_terminal() -> None:
    items = [breaker("pay\x1b[2Jments", "open", pinned=True, by="a\nb", reason="\x1b]0;title\x07")]
    shown = "\n".join(drawn(seen(breakers={"by_state": {}, "pinned": 1, "items": items}), width=200))
    assert "\x1b" not in shown
    assert "\x07" not in shown
    assert "pay\\x1b[2Jments" in shown


def test_a_store_without_an_outbox_shows_none() -> None:
    assert not any(line.startswith("outbox") for line in drawn(seen(outbox=None, sagas=None)))


def test_a_queue_that_is_late_or_paused_and_stuck_sagas_are_shown() -> None:
    outbox = {
        "by_status": {"pending": 3}, "by_queue": {}, "oldest_due_at": None, "lag_s": 300.0,
        "paused": [{"queue": "slow", "paused_at": NOW, "paused_by": "ann", "reason": "moving house"}],
    }  # fmt: skip
    shown = drawn(seen(outbox=outbox, sagas={"by_state": {"stuck": 1, "running": 0}}))
    assert "outbox     5m behind   3 pending" in shown
    assert "  slow                          paused: moving house" in shown
    assert "sagas      1 stuck" in shown
