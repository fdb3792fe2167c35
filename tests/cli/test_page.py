"""The page about the command line is true: its program is run, its commands print what it shows."""

from __future__ import annotations

import asyncio
import re
import shlex
import sys
from collections.abc import Iterator
from datetime import timedelta
from importlib import import_module
from pathlib import Path

import pytest
from click.testing import CliRunner

from holdfast.cli.exits import MEANINGS
from holdfast.cli.root import root
from tests.docs.pages import ROOT, blocks_of

PAGE = ROOT / "docs/cli.md"
_ID = re.compile(r"\b(?:[0-9a-f]{24}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\b")


_NUMBER = r"[\d.e-]+"


def steady(text: str) -> str:
    """What a command printed, without what differs from run to run."""
    text = re.sub(r"\d{4}-\d\d-\d\d([ T])\d\d:\d\d:\d\d(\.\d+Z)?", r"TIME", text)
    for name, value in (("process=", r"\d+"), ("duration_s=", _NUMBER), ("lag_s=", _NUMBER), ("call_id +", r"\w+"),
                        ("causation_id +", r"\w+")):  # fmt: skip
        text = re.sub(name + value, f"{name}N", text)
    return _ID.sub("ID", re.sub(r"\b\ds\b", "0s", text)).rstrip()


def examples() -> Iterator[tuple[str, str]]:
    """The commands of the page with their output."""
    for block in blocks_of(PAGE):
        if block.language == "console":
            for example in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
                command, _, output = example.partition("\n")
                if command.startswith("holdfast "):
                    yield command, output


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The page's program after three payments and two shipments that failed; the ids of their letters and entries."""
    [program] = [block.text for block in blocks_of(PAGE) if block.language == "python"]
    (tmp_path / "shop.py").write_text(program)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "shop", raising=False)
    monkeypatch.setenv("PROVIDER", "down")
    shop = import_module("shop")
    for at in range(3):
        with pytest.raises(ConnectionError):
            shop.charge(f"o-{at + 1}", 100)
    with shop.hold.sessions.begin() as session:
        for order in ("o-1", "o-2"):
            shop.hold.outbox.put(session, "ship", {"order_id": order}, target="carrier", key=order)
        shop.hold.outbox.put(session, "ship", {"order_id": "o-9"}, target="carrier", delay=timedelta(hours=9.5))
    asyncio.run(shop.hold.runner().run_once())
    monkeypatch.delenv("PROVIDER")
    yield [*(letter.id for letter in reversed(shop.hold.letters.find())), *map(str, shop.hold.outbox.ids())]
    shop.hold.close()
    del sys.modules["shop"]


def test_every_command_of_the_page_prints_what_it_shows(shop: list[str]) -> None:
    shown = {id for _, output in examples() for id in _ID.findall(output) if id.startswith(("0660680fa", "06606810-"))}
    known = dict(zip(sorted(shown), shop, strict=True))
    env = {"HOLDFAST_URL": "sqlite:///shop.db", "COLUMNS": "80", "LOGNAME": "ann"}
    for command, output in examples():
        real = _ID.sub(lambda match: known.get(match[0], match[0]), command)
        result = CliRunner().invoke(root, shlex.split(real)[1:], env=env)
        assert steady(result.output) == steady(output), command


def test_the_page_has_the_exit_codes_of_the_program() -> None:
    rows = re.findall(r"^\| (\d) \| (.+) \|$", PAGE.read_text(), re.MULTILINE)
    assert rows == [(str(code.value), meaning) for code, meaning in MEANINGS.items()]
