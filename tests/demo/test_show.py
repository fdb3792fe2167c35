"""How the story is told."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from holdfast.demo.show import Lines, Panel, Silence, aligned, bars, show_for
from holdfast.demo.standing import Standing

STANDS = Standing(
    {"payments": "open", "mail": "half_open"}, {"pending": 3, "resolved": 4}, {"pending": 2, "succeeded": 9},
    {"SUCCEEDED": 1, "RUNNING": 2},
)  # fmt: skip


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def test_without_a_terminal_there_are_lines(capsys: pytest.CaptureFixture[str]) -> None:
    show = show_for("http://here", is_silent=False)
    assert type(show) is Lines
    show.chapter("One")
    show.tell(1.25, "it happens")
    show.table([("a", "1"), ("bcd", "22")])
    show.stand(STANDS, (), 1)
    show.close()
    assert capsys.readouterr().out.splitlines() == ["", "One", "    1.2 s  it happens", "  a    1", "  bcd  22"]


def test_for_programs_nothing_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    show = show_for("http://here", is_silent=True)
    assert type(show) is Silence
    show.chapter("One")
    show.say("two")
    assert capsys.readouterr().out == ""


def test_a_terminal_without_unicode_gets_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    terminal.encoding = "ascii"
    monkeypatch.setattr("sys.stdout", terminal)
    assert type(show_for("http://here", is_silent=False)) is Lines


def test_in_a_terminal_the_panel_says_how_things_stand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setattr("sys.stdout", Terminal())
    show = show_for("http://127.0.0.1:8400", is_silent=False)
    assert isinstance(show, Panel)
    try:
        show.stand(STANDS, ("payments",), None)
        console = Console(file=io.StringIO(), width=80, color_system=None)
        shown = console.render_lines(show.panel(STANDS, ("payments",), None), pad=False)
    finally:
        show.close()
    lines = ["".join(segment.text for segment in line).strip() for line in shown]
    assert max(map(len, lines)) <= 80
    assert lines[1] == "breakers   payments open   stock closed   mail half-open"
    assert lines[2].endswith("█ 3 waiting, 4 replayed")
    assert lines[3].endswith("█ 2 waiting, 9 done")
    assert lines[4] == "workflows  2 under way, 1 done"
    assert lines[5] == "worker     none: it was killed   down: payments"
    assert lines[6] == "console    http://127.0.0.1:8400   Ctrl-C ends it"


def test_figures_stand_to_the_right() -> None:
    assert aligned([("", "bare"), ("lost", "7")], of_figures=True) == ["      bare", "lost     7"]


@pytest.mark.parametrize(("values", "line"), [([0, 0], "  "), ([1, 100], "▁█"), ([4, 8], "▄█"), ([], "")])
def test_what_is_not_nothing_has_a_bar(values: list[int], line: str) -> None:
    assert bars(values) == line
