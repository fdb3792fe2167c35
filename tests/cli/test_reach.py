"""Everything that the API can do can be asked for on the command line: a new route fails here until a command asks it.

Each operation has a command, which is run against a server: the operation must be among what that was asked.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

import click
import pytest
from click.testing import CliRunner

from holdfast.app import Holdfast
from holdfast.cli.root import root
from holdfast.server.api import BASE, create_app
from holdfast.server.shields import Limits
from tests.cli import shop
from tests.cli.served import served
from tests.cli.things import Things, filled
from tests.outbox.entries import enqueue, make_entry

PLENTY: Final = Limits(reads=(1e6, 1_000_000), changes=(1e6, 1_000_000), address=(1e6, 1_000_000))
WHY: Final = "--reason because"

REACHED: Final[dict[str, str]] = {
    "GET /ready": "server ready",
    "GET /status": "server status",
    "GET /session": "server whoami",
    "GET /events/recent": "server events",
    "GET /overview": "top --once",
    "GET /overview/series": "server series",
    "GET /doctor": "doctor",
    "GET /access/roles": "access roles",
    "GET /access/users": "access users",
    "GET /access/users/{name}": "access show-user ann",
    "POST /access/users/{name}": "access add-user ann --role viewer --password-stdin",
    "POST /access/users/{name}/password": "access set-password ann --password-stdin",
    "POST /access/users/{name}/role": "access set-role ann operator",
    "POST /access/users/{name}/disable": "access disable ann",
    "POST /access/users/{name}/enable": "access enable ann",
    "POST /access/users/{name}/remove": "access remove-user ann",
    "GET /access/tokens": "access tokens",
    "POST /access/tokens": "access create-token ci --role viewer",
    "POST /access/tokens/{id}/revoke": "access revoke-token hf_1",
    "GET /guards": "guards list",
    "GET /guards/{name}": "guards show stock",
    "GET /breakers": "breakers list",
    "GET /breakers/{name}": "breakers show stock",
    "POST /breakers/{name}/force-open": f"breakers force-open stock {WHY}",
    "POST /breakers/{name}/force-close": f"breakers force-close stock {WHY}",
    "POST /breakers/{name}/reset": "breakers reset stock",
    "POST /breakers/{name}/clear": "breakers clear stock",
    "GET /retry/policy": "retry policy",
    "PUT /retry/policy": "retry set --max-attempts 2",
    "GET /circuit-breakers": "retry breakers",
    "GET /circuit-breakers/metrics": "retry moves",
    "GET /circuit-breakers/{id}": "retry breaker p-1",
    "POST /circuit-breakers/{id}/reset": "retry reset p-1",
    "GET /metrics/retries": "retry metrics",
    "GET /metrics/retries/timeseries": "retry hourly",
    "GET /metrics/retries/by-proxy": "retry endpoints",
    "GET /pools": "pools list",
    "GET /pools/{name}": "pools show cdn",
    "POST /pools/{name}/members/{endpoint}/drain": f"pools drain cdn a {WHY}",
    "POST /pools/{name}/members/{endpoint}/enable": "pools enable cdn a",
    "POST /pools/{name}/members/{endpoint}/reset": "pools reset cdn a",
    "GET /letters": "letters list",
    "GET /letters/facets": "letters facets",
    "GET /letters/statistics": "letters stats",
    "GET /letters/retention": "letters retention",
    "GET /letters/fingerprints": "letters errors",
    "GET /letters/domains": "letters domains",
    "GET /letters/{id}": "letters show {letter}",
    "POST /letters/{id}/replay": "letters retry {letter}",
    "POST /letters/{id}/resolve": "letters resolve {other} --note done",
    "POST /letters/{id}/discard": "letters reject {other} --note no",
    "POST /letters/{id}/reveal": f"letters reveal {{letter}} {WHY}",
    "POST /letters/{id}/review": "letters review {letter}",
    "POST /letters/{id}/reopen": f"letters reopen {{letter}} {WHY}",
    "POST /letters/{id}/delete": f"letters delete {{letter}} {WHY} --yes",
    "POST /letters/domains/pause": f"letters pause payments {WHY}",
    "POST /letters/domains/resume": "letters resume payments",
    "GET /letters/archive/preview": "letters archive --older-than 0 --dry-run",
    "POST /letters/archive": "letters archive --older-than 0",
    "GET /letters/purge/preview": "letters purge --older-than 0",
    "POST /letters/purge": "letters purge --older-than 0 --yes",
    "POST /bulk/preview": "letters bulk replay --dry-run",
    "POST /bulk": f"letters bulk discard --domain payments --yes --detach {WHY}",
    "GET /bulk": "letters bulk list",
    "GET /bulk/{id}": "letters bulk status {operation}",
    "POST /bulk/{id}/abort": "letters bulk abort {operation}",
    "GET /outbox": "outbox list",
    "GET /outbox/facets": "outbox facets",
    "GET /outbox/requeue/preview": "outbox requeue --all --dry-run",
    "GET /outbox/{id}": "outbox show {entry}",
    "POST /outbox/{id}/reveal": f"outbox reveal {{entry}} {WHY}",
    "POST /outbox/{id}/requeue": "outbox requeue {entry}",
    "POST /outbox/requeue": "outbox requeue --all --yes",
    "POST /outbox/{id}/cancel": f"outbox cancel {{again}} {WHY}",
    "POST /outbox/{id}/verify": "outbox verify {verified}",
    "POST /outbox/queues/pause": f"outbox pause default {WHY}",
    "POST /outbox/queues/resume": "outbox resume default",
    "GET /outbox/counts": "outbox counts",
    "GET /outbox/prune/preview": "outbox prune --older-than 0",
    "POST /outbox/prune": "outbox prune --older-than 0 --yes",
    "GET /sagas": "saga list",
    "GET /sagas/facets": "saga facets",
    "GET /sagas/{id}": "saga show {saga}",
    "POST /sagas/{id}/reveal": f"saga reveal {{saga}} {WHY}",
    "POST /sagas/{id}/resume": "saga resume {saga}",
    "POST /sagas/{id}/resolve": "saga resolve {saga} charge",
    "POST /sagas/{id}/cancel": "saga cancel {saga}",
    "GET /workflows": "workflow list",
    "POST /workflows": "workflow start fulfil --input '[{{}}]'",
    "GET /workflows/facets": "workflow counts",
    "GET /workflows/stranded": "workflow stranded",
    "GET /workflows/describe": "workflow describe fulfil",
    "GET /workflows/dead": "workflow dead list",
    "POST /workflows/dead/{item}/reveal": f"workflow dead reveal {{dead}} {WHY}",
    "POST /workflows/dead/{item}/replay": "workflow dead replay {dead}",
    "POST /workflows/dead/{item}/discard": "workflow dead discard {gone} --yes",
    "POST /workflows/finalizers/{finalizer}/run": "workflow finalize {finalizer}",
    "GET /workflows/{id}": "workflow show {flow}",
    "GET /workflows/{id}/log": "workflow log {flow}",
    "GET /workflows/{id}/at/{seq}": "workflow show {flow} --at 1",
    "GET /workflows/{id}/graph.svg": "workflow graph {flow} --out -",
    "GET /workflows/{id}/timeline": "workflow timeline {flow}",
    "GET /workflows/{id}/stages/{stage}": "workflow show {flow} --stage charge",
    "POST /workflows/{id}/reveal": f"workflow reveal {{flow}} {WHY}",
    "POST /workflows/{id}/pause": "workflow pause {flow}",
    "POST /workflows/{id}/resume": "workflow resume {flow}",
    "POST /workflows/{id}/signal": "workflow signal {flow} hello",
    "POST /workflows/{id}/approve": "workflow approve {flow} --name hello",
    "POST /workflows/{id}/reject": "workflow reject {flow} --name hello",
    "POST /workflows/{id}/recover": "workflow recover {flow}",
    "POST /workflows/{id}/stages/{stage}/restart": "workflow restart {flow} charge",
    "POST /workflows/{id}/stages/{stage}/skip": "workflow skip {flow} ship",
    "POST /workflows/{id}/stages/{stage}/cancel": "workflow cancel {flow} --stage ship",
    "POST /workflows/{id}/cancel": "workflow cancel {flow}",
    "POST /workflows/{id}/retry": "workflow retry {failed}",
    "POST /workflows/{id}/fork": "workflow fork {failed} --from charge",
    "GET /workflows/prune/preview": "workflow prune --older-than 1d",
    "POST /workflows/prune": f"workflow prune --older-than 2100-01-01T00:00 --yes {WHY}",
    "GET /schedules": "workflow schedule list",
    "POST /schedules": "workflow schedule add nightly report --cron '0 3 * * *' --input '[1]'",
    "GET /schedules/{name}": "workflow schedule show daily",
    "POST /schedules/{name}/reveal": f"workflow schedule reveal daily {WHY}",
    "POST /schedules/{name}/pause": "workflow schedule pause daily",
    "POST /schedules/{name}/resume": "workflow schedule resume daily",
    "POST /schedules/{name}/run": "workflow schedule run daily",
    "POST /schedules/{name}/remove": "workflow schedule delete daily",
    "GET /workers": "workers list",
    "GET /workers/{id}": "workers show nobody",
    "GET /audit": "audit list",
    "GET /audit/types": "audit types",
    "GET /audit/status": "audit status",
    "GET /audit/streams": "audit streams",
    "POST /audit/verify": "audit verify",
    "GET /audit/verify/{id}": "audit verify",
    "POST /audit/checkpoints": "audit checkpoint",
}
"""Which command asks for it, in an order in which things can be used up; `{letter}` and so on are ids of `Things`."""

NOT_FOR_COMMANDS: Final[dict[str, str]] = {
    "GET /health": "for whoever watches processes; `server ready` says more",
    "POST /session": "a browser signs in, and has a cookie; a command has a token",
    "DELETE /session": "ends a browser's session",
    "POST /session/password": "a browser's; `access set-password` gives a user another one",
    "GET /events": "a stream for open pages; `server events` shows the last ones, `workflow watch` follows",
    "GET /metrics/circuit-breakers": "another name of /circuit-breakers/metrics",
    "GET /workflows/{id}/graph": "places in a drawing; `workflow graph` draws it, and writes the picture",
    "GET /doctor/rules": "the same in every process: `doctor --rules` lists them without asking",
}
"""What no command asks for, and why."""


class Asked(NamedTuple):
    """A server that notes what it was asked, and what there is to ask it for."""

    url: str
    heard: list[str]
    things: Things


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    heard: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(shop.URL, f"sqlite:///{tmp_path_factory.mktemp('reach') / 'shop.db'}")
        with shop.whole() as hold:
            things = filled(hold, patch)
            _finish_some(hold)
            with served(hold, heard, required=False, limits=PLENTY) as url:
                yield Asked(url, heard, things)


def _finish_some(hold: Holdfast) -> None:
    """A letter, an entry and a workflow that can be deleted."""
    hold.letters.update_status(hold.letters.create("payments", "F").id, "archived")
    now = datetime.now(UTC)
    enqueue(hold.outbox, make_entry("ann", at=now, status="succeeded", last_attempt_at=now))
    hold.workflows.cancel(hold.workflows.start("fulfil", {"id": 9}).id, "enough", by="ann")


def test_every_operation_has_a_command_or_a_reason_not_to(hold: Holdfast) -> None:
    paths = create_app(hold).openapi()["paths"]
    there = {f"{method.upper()} {path.removeprefix(BASE)}" for path, methods in paths.items() for method in methods}
    assert set(REACHED) | set(NOT_FOR_COMMANDS) == there
    assert not set(REACHED) & set(NOT_FOR_COMMANDS)


@pytest.mark.parametrize(("operation", "command"), REACHED.items(), ids=list(REACHED))
def test_the_command_asks_for_it(asked: Asked, operation: str, command: str) -> None:
    args, before = shlex.split(command.format(**asked.things._asdict())), len(asked.heard)
    env = {"HOLDFAST_APP": None}
    done = CliRunner().invoke(root, [*args, "--url", asked.url], env=env, input="correct horse battery\n")
    assert done.exit_code in (0, 1, 3), done.output  # a thing may be in a state that does not allow it
    method, _, path = operation.partition(" ")
    pattern = re.compile(re.sub(r"\\\{[a-z]+\\\}", "[^/]+", re.escape(f"{method} {BASE}{path}")))
    others = {one.replace(" ", f" {BASE}") for one in REACHED if "{" not in one and one != operation}
    assert [one for one in asked.heard[before:] if pattern.fullmatch(one) and one not in others]


def test_the_page_names_every_command() -> None:
    page = (Path(__file__).parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")
    assert not [name for name in _commands(root) if not _is_named(name, page)]


def _is_named(command: str, page: str) -> bool:
    """By its full name, or in a line with others of its group: `letters pause DOMAIN`, `resume DOMAIN`."""
    group, _, name = command.rpartition(" ")
    if not group:
        return f"`{name}`" in page or f"holdfast {name}" in page
    lines = [line for line in page.splitlines() if f"`{group} " in line or f"holdfast {group} " in line]
    return any(re.search(rf"[` ]{re.escape(name)}\b", line) for line in lines)


def _commands(group: click.Group, before: str = "") -> Iterator[str]:
    """Every command by its full name."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from _commands(command, f"{before}{name} ")
        else:
            yield f"{before}{name}"
