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

from holdfast import Holdfast
from holdfast.demo import live
from holdfast.demo.__main__ import main
from holdfast.demo.half import Half
from holdfast.demo.picture import draw
from holdfast.demo.run import run_half
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


def run_python(*arguments: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run Python; in a folder, temporary files belong there as well."""
    own = {} if folder is None else {"TMPDIR": str(folder)}
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=60,
        cwd=folder,
        env={"PYTHONPATH": str(ROOT / "src"), "PYTHONIOENCODING": "utf-8", **own},
        check=False,
    )


def test_the_picture_is_well_formed_and_has_every_series(halves: tuple[Half, Half]) -> None:
    root = ElementTree.fromstring(draw(*halves))
    series = {element.get("id"): element.get("points", "") for element in root.iter() if element.get("id")}
    for panel in ("answered", "latency", "load", "orders"):
        for half in ("bare", "guarded"):
            assert len(series[f"{panel}-{half}"].split()) == 80  # two ends of 40 slices
    assert series["fallback"]
    assert series["letters"]
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


def frame_lines(halves: tuple[Half, Half], moment: float) -> list[str]:
    console = Console(file=io.StringIO(), width=80, height=24, color_system=None)
    shown = console.render_lines(live.frame(halves, halves[1], moment), pad=False)
    return ["".join(segment.text for segment in line).rstrip() for line in shown]


def test_the_dead_letters_rise_and_fall_on_the_screen(halves: tuple[Half, Half]) -> None:
    rows = {
        moment: next(row for row in frame_lines(halves, moment) if row.startswith("  dead letters"))
        for moment in (4, 7, 10)
    }
    assert rows[4].split() == ["dead", "letters"]
    assert rows[7].endswith("61 waiting")
    assert rows[10].endswith("all placed")
    hill = rows[10].removeprefix("  dead letters").removesuffix("all placed").strip()
    heights = [live.BARS.index(bar) for bar in hill]
    top = heights.index(8)
    assert heights[: top + 1] == sorted(heights[: top + 1])
    assert heights[top:] == sorted(heights[top:], reverse=True)


def test_the_screen_tells_of_a_drain_that_outlasts_the_half() -> None:
    halves = run_half(guarded=False, seed=7, seconds=4), run_half(guarded=True, seed=7, seconds=4)
    assert max(letter.placed or 0.0 for letter in halves[1].letters) > 4
    shown = "\n".join(frame_lines(halves, 4.0))
    assert "all placed" in shown
    assert "all 41 placed in" in shown


def test_in_a_terminal_both_halves_play_in_real_time(terminal: Terminal, svg: str) -> None:
    clock = ManualClock()
    begun = clock.monotonic()
    with redirect_stdout(terminal):
        assert main(["--svg", svg, "--seconds", "4"], clock) == 0
    assert 8.0 <= clock.monotonic() - begun < 8.5
    assert "both halves done" in terminal.getvalue()
    assert "breaker opened" in terminal.getvalue()
    assert "orders lost for good" in terminal.getvalue()


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
    assert summary["guarded"]["letters"] == summary["guarded"]["placed_later"] > 0
    assert summary["guarded"]["unplaced"] == 0 < summary["bare"]["unplaced"]
    assert Path(summary["picture"]).exists()


def test_without_a_terminal_it_prints_lines_and_ends_well(svg: str) -> None:
    done = run_python("-m", "holdfast.demo", "--svg", svg)
    assert done.returncode == 0, done.stderr
    assert "t= 5.0 s  outage begins" in done.stdout
    assert "callers answered" in done.stdout
    assert "\x1b" not in done.stdout
    assert Path(svg).read_text(encoding="utf-8").startswith("<svg")


def test_it_leaves_nothing_behind_but_the_picture(tmp_path: Path) -> None:
    done = run_python("-m", "holdfast.demo", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "orders lost for good 79 0" in " ".join(done.stdout.split())
    assert "kept as a dead letter in SQLite" in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["holdfast-demo.svg"]


def test_the_store_can_be_kept_and_looked_into(tmp_path: Path, svg: str, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "kept.db"
    assert main(["--keep", str(file), "--svg", svg, "--seconds", "4"]) == 0
    assert f"holdfast letters list --url sqlite:///{file}" in capsys.readouterr().out
    with Holdfast(f"sqlite:///{file}") as hold:
        assert hold.letters.get_facet_counts()["by_status"] == {"resolved": 41}
        letter = hold.letters.find(domain="orders", limit=1)[0]
        assert letter.request_data["args"] == {"order_id": int(letter.entity_id or "")}


def test_a_file_that_is_there_is_not_overwritten(tmp_path: Path, svg: str, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "precious.db"
    file.write_text("mine", encoding="utf-8")
    assert main(["--keep", str(file), "--svg", svg]) == 1
    assert main(["--keep", str(tmp_path / "missing" / "a.db"), "--svg", svg]) == 1
    assert file.read_text(encoding="utf-8") == "mine"
    assert not Path(svg).exists()
    assert capsys.readouterr().err.count("choose another --keep") == 2


def test_it_needs_nothing_but_holdfast_and_says_what_the_extra_would_add(svg: str) -> None:
    done = run_python("-S", "-m", "holdfast.demo", "--svg", svg, "--seconds", "4")  # -S: no installed packages
    assert done.returncode == 0, done.stderr
    assert "for the live view and dead letters in SQLite: pip install 'holdfast[demo]'" in done.stdout
    assert "callers answered" in done.stdout
    assert "kept as a dead letter in memory" in done.stdout


def test_what_becomes_of_the_letters_does_not_depend_on_the_store(svg: str) -> None:
    in_file, in_memory = (
        run_python(*flags, "-m", "holdfast.demo", "--json", "--svg", svg, "--seconds", "4") for flags in ((), ("-S",))
    )
    assert in_file.stdout == in_memory.stdout
    assert json.loads(in_file.stdout)["guarded"]["placed_later"] == 41


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
