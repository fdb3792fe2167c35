"""The code in README and docs, as it is run: the blocks of a page in order, in one namespace.

What a page shows as output is compared with what the code prints:

    print(outcome.kind)  # -> success      each print on this line gives exactly this text
    # -> success                           the same for the line above
    ```text                                a text block right after a python block is
    …                                      everything else that the block prints

A print whose output is not shown fails, so no output can be forgotten. `await` works at the top level of a block. A
block that cannot run here (it needs a network, say) has the line `<!-- not run: the reason -->` before it.
"""

from __future__ import annotations

import ast
import asyncio
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from inspect import CO_COROUTINE
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", *sorted(ROOT.glob("docs/**/*.md"))]

_FENCE = re.compile(r"^( *)```(\w*)[^\n`]*$")
_SHOWN = re.compile(r"# -> (.*)$")
_NOT_RUN = re.compile(r"<!-- not run: (.+) -->")


@dataclass
class Block:
    """A fenced block: its language, the number of its first line, and what stands right before and after it."""

    language: str
    line: int
    text: str
    before: str = ""
    output: str | None = None

    @property
    def runs(self) -> bool:
        return self.language == "python" and not _NOT_RUN.fullmatch(self.before)

    @property
    def shown(self) -> dict[int, str]:
        """What the page says that a line prints, by line."""
        shown = {}
        for number, line in enumerate(self.text.splitlines(), self.line):
            if match := _SHOWN.search(line):
                shown[number - line.lstrip().startswith("# ->")] = match[1]
        return shown


def blocks_of(page: Path) -> list[Block]:
    """The fenced blocks of a page; a text block that follows a python block at once is its output."""
    blocks: list[Block] = []
    for block in _fenced(page.read_text().splitlines()):
        if block.language == "text" and blocks and blocks[-1].language == "python" and block.before == "```":
            blocks[-1].output = block.text
        blocks.append(block)
    return blocks


def _fenced(lines: list[str]) -> Iterator[Block]:
    opened: Block | None = None
    before, indent, inner = "", "", []
    for number, line in enumerate(lines, 1):
        fence = _FENCE.match(line)
        if opened is None and fence:
            indent, inner = fence[1], []
            opened = Block(fence[2], number + 1, "", before.strip())
        elif opened is not None and fence and fence[1] == indent and not fence[2]:
            opened.text = "\n".join(inner)
            yield opened
            opened, before = None, "```"
        elif opened is not None:
            inner.append(line.removeprefix(indent))
        elif line.strip():
            before = line


@dataclass
class Printer:
    """`print` for the code of a page: keeps each text with the line that printed it."""

    page: Path
    told: list[tuple[int, str]] = field(default_factory=list)

    def __call__(self, *values: object, sep: str = " ", end: str = "\n", **_: Any) -> None:
        frame: Any = sys._getframe(1)
        while frame is not None and frame.f_code.co_filename != str(self.page):
            frame = frame.f_back
        self.told.append((0 if frame is None else frame.f_lineno, sep.join(map(str, values))))


def run(page: Path) -> None:
    """Run a page's blocks and compare their output. Raises AssertionError where page and program differ."""
    module = ModuleType(f"page_{page.stem.replace('-', '_')}")
    printer = Printer(page)
    module.__dict__["print"] = printer
    sys.modules[module.__name__] = module
    try:
        with asyncio.Runner() as runner:
            for block in blocks_of(page):
                if block.runs:
                    printer.told.clear()
                    _execute(block, page, module.__dict__, runner)
                    _compare(block, page, printer.told)
    finally:
        del sys.modules[module.__name__]


def _execute(block: Block, page: Path, names: dict[str, Any], runner: asyncio.Runner) -> None:
    tree = ast.parse(block.text, str(page))
    ast.increment_lineno(tree, block.line - 1)  # tracebacks name the line of the page
    code = compile(tree, str(page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    if code.co_flags & CO_COROUTINE:
        runner.run(eval(code, names))
    else:
        exec(code, names)


def _compare(block: Block, page: Path, told: list[tuple[int, str]]) -> None:
    shown = block.shown
    rest = []
    for line, text in told:
        if line not in shown:
            rest.append(text)
        else:
            assert text == shown[line], f"{page.name}:{line} prints {text!r}, the page shows {shown[line]!r}"
    printed = {line for line, _ in told}
    for line in shown:
        assert line in printed, f"{page.name}:{line} shows output, but prints nothing"
    seen = "\n".join(rest)
    assert seen == (block.output or ""), f"{page.name}:{block.line} prints\n{seen}\nbut the page shows\n{block.output}"
