"""What the demo shows: in a terminal, without one, as JSON and as a picture."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from contextlib import redirect_stdout
from pathlib import Path
from xml.etree import ElementTree

import pytest
from rich.console import Console

from holdfast.demo import live
from holdfast.demo.__main__ import main
from holdfast.demo.picture import draw
from holdfast.demo.run import Half, run_half
from holdfast.testing.clock import ManualClock

ROOT = Path(__file__).parents[2]
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def halves() -> tuple[Half, Half]:
    return run_half(guarded=False, seed=7, seconds=10), run_half(guarded=True, seed=7, seconds=10)


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "80")
    return Terminal()


@pytest.fixture
def svg(tmp_path: Path) -> str:
    return str(tmp_path / "run.svg")


def run_python(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=60,
        env={"PYTHONPATH": str(ROOT / "src"), "PYTHONIOENCODING": "utf-8"},
        check=False,
    )


def test_the_picture_is_well_formed_and_has_every_series(halves: tuple[Half, Half]) -> None:
    root = ElementTree.fromstring(draw(*halves))
    series = {element.get("id"): element.get("points", "") for element in root.iter() if element.get("id")}
    for panel in ("answered", "latency", "load"):
        for half in ("bare", "guarded"):
            assert len(series[f"{panel}-{half}"].split()) == 80  # two ends of 40 slices
    assert series["fallback"]
    states = {element.get("data-state") for element in root.iter(f"{SVG}rect")}
    assert states >= {"closed", "open", "half_open"}


def test_the_picture_stays_inside_its_frame(halves: tuple[Half, Half]) -> None:
    root = ElementTree.fromstring(draw(*halves))
    width, height = float(root.get("width", 0)), float(root.get("height", 0))
    for element in root.iter():
        for point in element.get("points", "").split():
            x, y = map(float, point.split(","))
            assert 0 <= x <= width
            assert 0 <= y <= height
        assert float(element.get("x", 0)) + float(element.get("width", 0)) * (element is not root) <= width
        assert float(element.get("y", 0)) <= height


def test_the_picture_can_be_read_aloud_and_on_dark_pages(halves: tuple[Half, Half]) -> None:
    document = draw(*halves)
    root = ElementTree.fromstring(document)
    assert root.get("role") == "img"
    assert [element.tag for element in root][:2] == [f"{SVG}title", f"{SVG}desc"]
    assert "The guard answered" in (root[1].text or "")
    assert "prefers-color-scheme:dark" in document


def test_the_same_run_gives_the_same_picture(halves: tuple[Half, Half]) -> None:
    assert draw(*halves) == draw(*halves)


@pytest.mark.parametrize("moment", [0.0, 3.3, 5.6, 10.0])
@pytest.mark.parametrize("which", [0, 1])
def test_a_frame_fits_a_small_terminal(halves: tuple[Half, Half], which: int, moment: float) -> None:
    console = Console(file=io.StringIO(), width=200, height=50, color_system=None)
    shown = console.render_lines(live.frame(halves, halves[which], moment), pad=False)
    lines = ["".join(segment.text for segment in line).rstrip() for line in shown]
    assert len(lines) <= 23
    # The rule is as wide as the console; everything else must not be.
    assert max(len(line) for line in lines if not line.startswith("──")) <= 80


def test_in_a_terminal_both_halves_play_in_real_time(terminal: Terminal, svg: str) -> None:
    clock = ManualClock()
    begun = clock.monotonic()
    with redirect_stdout(terminal):
        assert main(["--svg", svg, "--seconds", "4"], clock) == 0
    assert 8.0 <= clock.monotonic() - begun < 8.5
    assert "both halves done" in terminal.getvalue()
    assert "breaker opened" in terminal.getvalue()


def test_fast_shows_the_result_without_playing_it(terminal: Terminal, svg: str) -> None:
    clock = ManualClock()
    with redirect_stdout(terminal):
        assert main(["--svg", svg, "--fast"], clock) == 0
    assert clock.slept == []
    assert "both halves done" in terminal.getvalue()
    assert f"picture: {svg}" in terminal.getvalue()


def test_a_terminal_without_unicode_gets_lines_of_text_at_their_time(terminal: Terminal, svg: str) -> None:
    terminal.encoding = "ascii"
    clock = ManualClock()
    begun = clock.monotonic()
    with redirect_stdout(terminal):
        assert main(["--svg", svg, "--seconds", "4"], clock) == 0
    assert clock.monotonic() - begun == pytest.approx(8.0)
    assert terminal.getvalue().isascii()


def test_json_is_the_whole_output_and_the_same_every_time(capsys: pytest.CaptureFixture[str], svg: str) -> None:
    assert main(["--json", "--svg", svg, "--seed", "3"]) == 0
    first = capsys.readouterr().out
    assert main(["--json", "--svg", svg, "--seed", "3"]) == 0
    assert capsys.readouterr().out == first
    summary = json.loads(first)
    assert summary["seed"] == 3
    assert summary["guarded"]["answered"] > summary["bare"]["answered"]
    assert summary["guarded"]["changes"][0]["state"] == "open"
    assert Path(summary["picture"]).exists()


def test_without_a_terminal_it_prints_lines_and_ends_well(svg: str) -> None:
    done = run_python("-m", "holdfast.demo", "--svg", svg)
    assert done.returncode == 0, done.stderr
    assert "t= 5.0 s  outage begins" in done.stdout
    assert "callers answered" in done.stdout
    assert "\x1b" not in done.stdout
    assert Path(svg).read_text(encoding="utf-8").startswith("<svg")


def test_it_needs_nothing_but_holdfast_and_says_what_rich_would_add(svg: str) -> None:
    done = run_python("-S", "-m", "holdfast.demo", "--svg", svg, "--seconds", "4")  # -S: no installed packages
    assert done.returncode == 0, done.stderr
    assert "pip install 'holdfast[demo]'" in done.stdout
    assert "callers answered" in done.stdout


def test_a_picture_that_cannot_be_written_is_reported(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["--json", "--svg", str(tmp_path / "missing" / "run.svg")]) == 1
    assert "choose another --svg" in capsys.readouterr().err


@pytest.mark.parametrize("seconds", ["0", "-3", "nan", "soon", "1000"])
def test_an_impossible_length_is_refused(seconds: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main([f"--seconds={seconds}"])
    assert stopped.value.code == 2
    assert f"must be 4 to 120 seconds, got {seconds}" in capsys.readouterr().err


def test_the_example_in_the_readme_runs() -> None:
    done = run_python(str(ROOT / "examples" / "guarded_payments.py"))
    assert done.returncode == 0, done.stderr
    assert "receipt for order 1: 19.99 EUR" in done.stdout
    assert "ConnectionError: bank is down" in done.stdout
    assert "refused: circuit_open, try again in 30 s" in done.stdout
    assert "order 4, synchronous: rejected" in done.stdout
