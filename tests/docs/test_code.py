"""The code in README and docs does what the pages say."""

from __future__ import annotations

import pytest

from tests.docs.pages import PAGES, ROOT, Block, blocks_of, run

NAMES = [str(page.relative_to(ROOT)) for page in PAGES]
WITH_CODE = [page for page in PAGES if any(block.language == "python" for block in blocks_of(page))]


@pytest.mark.parametrize("page", WITH_CODE, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_code_of_a_page_runs_and_prints_what_the_page_shows(page):
    run(page)


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
