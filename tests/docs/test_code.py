"""The code in README and docs does what the pages say, and the examples run."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.docs.pages import PAGES, ROOT, Block, blocks_of, run

NAMES = [str(page.relative_to(ROOT)) for page in PAGES]
EXAMPLES = {
    "dead_letters": ("3 letters wait", "2 letters wait", "0 letters wait", "drained", "o-3: charged on attempt 1"),
    "shared_breaker": ("worker 2: open", "both closed", "held open by ann"),
}
WITH_CODE = [page for page in PAGES if any(block.language == "python" for block in blocks_of(page))]


@pytest.mark.parametrize("page", WITH_CODE, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_code_of_a_page_runs_and_prints_what_the_page_shows(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # pages name files as programs do
    run(page)


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_runs_and_tells_its_story(name, tmp_path):
    program = str(ROOT / "examples" / f"{name}.py")
    done = subprocess.run([sys.executable, program], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert not list(tmp_path.iterdir()), "an example leaves nothing behind"
    for words in EXAMPLES[name]:
        assert words in done.stdout


def test_a_wrong_output_is_found(tmp_path):
    page = tmp_path / "wrong.md"
    page.write_text("```python\nprint(1 + 1)  # -> 3\n```\n")
    with pytest.raises(AssertionError, match="prints '2', the page shows '3'"):
        run(page)


def test_an_output_may_be_shown_below_its_line(tmp_path):
    page = tmp_path / "below.md"
    page.write_text("```python\nprint(1 + 1)\n# -> 2\n```\n")
    run(page)


def test_an_output_that_is_not_shown_is_found(tmp_path):
    page = tmp_path / "silent.md"
    page.write_text("```python\nprint('unseen')\n```\n")
    with pytest.raises(AssertionError, match="unseen"):
        run(page)


def test_an_output_that_never_comes_is_found(tmp_path):
    page = tmp_path / "mute.md"
    page.write_text("```python\nif False:\n    print('late')  # -> late\n```\n")
    with pytest.raises(AssertionError, match="prints nothing"):
        run(page)


def test_blocks_share_their_names_and_may_await(tmp_path):
    page = tmp_path / "shared.md"
    first = "```python\nimport asyncio\nx = 20\n```\n\n"
    second = "```python\nawait asyncio.sleep(0)\nfor y in (1, 2):\n    print(x + y)\n```\n\n"
    page.write_text(f"{first}{second}```text\n21\n22\n```\n")
    run(page)


def test_a_block_that_is_not_run_says_why(tmp_path):
    page = tmp_path / "apart.md"
    page.write_text("<!-- not run: needs a network -->\n```python\nraise SystemExit\n```\n")
    run(page)
    assert [block.runs for block in blocks_of(page)] == [False]
    assert Block("python", 1, "", "<!-- not run: -->").runs
