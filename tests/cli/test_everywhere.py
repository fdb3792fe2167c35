"""A command shows the same of a store and of a server that serves it, as a table and as a document."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import click
import pytest
from click.testing import CliRunner

from holdfast.cli.root import root
from tests.cli import shop
from tests.cli.served import served
from tests.cli.things import SECRET, Things, filled

LOOKS: Final = (
    "letters list", "letters show {letter}", "letters domains", "letters errors", "letters retention",
    "letters errors --domain payments --limit 1", "letters domains --limit 1", "letters bulk list",
    "letters bulk status {operation}", "letters bulk replay --domain payments --dry-run",
    "breakers list", "workers list", "access roles",
    "outbox list", "outbox list --limit 1", "outbox show {entry}", "outbox facets", "outbox abandoned",
    "outbox scheduled", "outbox paused", "outbox requeue --all --dry-run", "outbox cancel --status pending --dry-run",
    "saga list", "saga show {saga}", "saga facets", "saga list --state stuck", "saga list --limit 1",
    "workflow list", "workflow show {flow}", "workflow show {failed}", "workflow show {flow} --stage charge",
    "workflow show {flow} --at 1", "workflow log {flow}", "workflow timeline {flow}", "workflow stranded",
    "workflow describe fulfil", "workflow describe {flow}", "workflow finalizers {failed} --state failed",
    "workflow dead list", "workflow dead show {dead}", "workflow schedule list", "workflow schedule show daily",
    "workflow schedule next daily",
    "audit list", "audit list --type operation_failed --limit 1", "audit status", "audit streams", "audit types",
    "audit show o-7", "audit show --since 1h --limit 2",
)  # fmt: skip
"""Everything that only looks, and that both can be asked."""
TABLES_ONLY: Final = ("workflow graph {flow}", "workflow graph {failed} --out -")
UNTOLD: Final = {"stage_id": "", "incarnation": 0, "duration_ms": None}
"""What a server does not tell of a finalizer."""


class Shop(NamedTuple):
    """The same shop, once as a program and once at a server."""

    app: dict[str, str | None]
    at: dict[str, str | None]
    things: Things


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(shop.URL, f"sqlite:///{tmp_path_factory.mktemp('both') / 'shop.db'}")
        with shop.whole() as hold:
            things = filled(hold, patch)
            with served(hold) as url:
                yield Shop({"HOLDFAST_APP": shop.WHOLE}, {"HOLDFAST_APP": None, "HOLDFAST_URL": url}, things)


def said(command: str, both: Shop, env: dict[str, str | None], *more: str) -> tuple[int, str]:
    """How a command ended, and what it printed: times that pass are gone from it."""
    args = command.format(**both.things._asdict()).split()
    done = CliRunner().invoke(root, [*args, *more], env={"COLUMNS": "200", **env})
    assert "Traceback" not in done.output
    assert done.exit_code in (0, 1), done.output
    return done.exit_code, re.sub(r"\b\d+(\.\d+)? ?(ms|s|m|h)\b", "-", done.stdout)


@pytest.mark.parametrize("command", [*LOOKS, *TABLES_ONLY])
def test_a_table_is_the_same(both: Shop, command: str) -> None:
    here, there = said(command, both, both.app), said(command, both, both.at)
    assert _settled(there[1]) == _settled(here[1])
    assert there[0] == here[0]
    assert SECRET not in here[1] + there[1]


@pytest.mark.parametrize("command", LOOKS)
def test_a_document_is_the_same(both: Shop, command: str) -> None:
    here, there = said(command, both, both.app, "--json"), said(command, both, both.at, "--json")
    assert _comparable(json.loads(there[1])) == _comparable(json.loads(here[1]))
    assert SECRET not in here[1] + there[1]


def lists(group: click.Group = root, *path: str) -> Iterator[str]:
    """Every command that lists something."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from lists(command, *path, name)
        elif name == "list":
            yield " ".join([*path, name])


LISTS: Final = (
    *sorted(set(lists()) - {"workers list"}), "access users", "access tokens", "outbox abandoned", "outbox scheduled",
    "outbox verify", "workflow log {flow}", "workflow stranded", "workflow finalizers", "doctor --rules",
)  # fmt: skip


@pytest.mark.parametrize("command", LISTS)
def test_a_list_has_its_items_where_the_api_has_them(both: Shop, command: str) -> None:
    document = json.loads(said(command, both, both.app, "--json")[1])
    assert isinstance(document["items"], list)


def _settled(text: str) -> list[str]:
    """Lines without widths, which lengths of time decide, and without the time of now."""
    return [" ".join(line.split()) for line in text.splitlines()]


def _comparable(found: Any) -> Any:
    """Without the times of now, and what only one of the two knows."""
    if isinstance(found, dict):
        return {name: UNTOLD.get(name, _comparable(value)) for name, value in found.items() if name not in _PASSING}
    return [_comparable(one) for one in found] if isinstance(found, list) else found


_PASSING: Final = frozenset({"now", "lag_s", "retry_after", "seen_at", "snapshot"})
