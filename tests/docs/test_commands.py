"""The commands on the operators' pages are commands of the program, with options and arguments that it takes."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from holdfast.cli.root import root
from tests.docs.pages import ROOT

PAGES = {name: ROOT / "docs" / f"{name}.md" for name in ("runbook", "operators-guide")}
PLACES = {
    "ID": "06606810-1c2b-76d8-ae56-0ee4ba57afb0",
    "NAME": "nightly",
    "STAGE": "pack",
    "STEP": "reserve",
    "NEW": "v2",
}
"""What stands on a page for something of the reader's."""
LOOKS = (
    "db info", "db check", "doctor", "letters stats", "letters facets", "letters list", "breakers list",
    "outbox counts", "outbox list", "outbox abandoned", "outbox paused", "saga list", "workflow list",
    "workflow stranded", "workflow dead list", "workflow recover", "workflow schedule list",
    "audit verify", "config show",
)  # fmt: skip
"""What only looks, and must work on an empty store."""


def commands(page: Path) -> list[str]:
    """Everything on the page that begins with `holdfast`: in a line of code, or after a prompt."""
    text = page.read_text()
    found = re.findall(r"`(holdfast [^`]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    found += re.findall(r"^\$ (holdfast .+)$", text, re.MULTILINE)
    return sorted({re.sub(r"\s+", " ", command) for command in found if not command.startswith("holdfast.")})


ALL = [(name, command) for name, page in PAGES.items() for command in commands(page)]


def parse(arguments: list[str]) -> str:
    """The path of the command that takes these arguments. Raises what click raises for those that none takes."""
    group, path, rest = root, [], arguments
    context = click.Context(root, info_name="holdfast")
    while isinstance(group, click.Group):
        made = group.make_context(path[-1] if path else "holdfast", list(rest), parent=context if path else None)
        rest = [*getattr(made, "_protected_args", ()), *made.args]
        assert rest, f"holdfast {' '.join(path)} alone does nothing"
        name, found, rest = group.resolve_command(made, list(rest))
        assert name is not None
        assert found is not None
        path.append(name)
        group, context = found, made  # type: ignore[assignment]
    group.make_context(path[-1], list(rest), parent=context)
    return " ".join(path)


@pytest.mark.parametrize(("page", "command"), ALL)
def test_a_command_of_a_page_can_be_given(page: str, command: str, tmp_path: Path) -> None:
    file = tmp_path / "checkpoints.jsonl"
    file.touch()
    given = [PLACES.get(word, str(file) if word == "FILE" else word) for word in shlex.split(command)[1:]]
    assert parse(given)


def test_a_command_that_is_none_is_found() -> None:
    for wrong in (["letters", "lst"], ["letters", "list", "--nonsense"], ["letters", "show"]):
        with pytest.raises(click.UsageError):
            parse(wrong)


@pytest.mark.parametrize("command", LOOKS)
def test_what_only_looks_works_on_an_empty_store(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    env = {"HOLDFAST_URL": "sqlite:///empty.db"}
    assert CliRunner().invoke(root, ["db", "upgrade"], env=env).exit_code == 0
    result = CliRunner().invoke(root, shlex.split(command), env=env)
    assert result.exit_code == 0, result.output
    assert any(command in shown for _, shown in ALL), f"no page mentions holdfast {command}"
