"""`reveal`: without masks, with a reason, and in the audit trail; of a store and of a server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from holdfast.app import Holdfast
from holdfast.cli.exits import ExitCode
from tests.cli import shop
from tests.cli.conftest import Run
from tests.cli.served import served
from tests.cli.things import SECRET, Things, filled

Answer = Callable[..., Any]
WHY = ("--reason", "a complaint")


@pytest.fixture
def own(run: Run) -> Iterator[Holdfast]:
    with shop.whole() as own:
        yield own


@pytest.fixture
def things(own: Holdfast, monkeypatch: pytest.MonkeyPatch) -> Things:
    return filled(own, monkeypatch)


@pytest.fixture(params=["store", "server"])
def where(request: pytest.FixtureRequest, own: Holdfast, url: str) -> Iterator[tuple[str, str]]:
    """Whether it is asked of a store or of a server; and whom the trail names then."""
    if request.param == "store":
        yield url, "ann"
        return
    with served(own) as at:
        yield at, "local"


@pytest.mark.parametrize(
    ("command", "act"),
    [
        ("letters reveal {letter}", "letters.reveal"), ("outbox reveal {entry}", "outbox.reveal"),
        ("saga reveal {saga}", "sagas.reveal"), ("workflow reveal {flow}", "workflows.reveal"),
        ("workflow reveal {flow} --stage pack", "workflows.reveal"),
        ("workflow schedule reveal daily", "workflows.reveal"),
    ],
)  # fmt: skip
def test_what_is_masked_is_revealed_with_a_reason_and_audited(
    run: Run, answer: Answer, own: Holdfast, things: Things, where: tuple[str, str], command: str, act: str
) -> None:
    given = [*command.format(**things._asdict()).split(), "--by", "ann", "--url", where[0]]
    assert "--reason" in run(*given, code=ExitCode.USAGE).stderr
    assert SECRET in run(*given, *WHY).stdout
    assert SECRET in str(answer(*given, *WHY))
    told = [one.event for one in own.audit.newest(subject_ref=f"operator:{where[1]}", limit=5).events]
    assert [(one.payload["act"], one.payload["reason"]) for one in told] == [(act, "a complaint")] * 2


def test_a_dead_item_is_revealed(run: Run, answer: Answer, things: Things, where: tuple[str, str]) -> None:
    shown = answer("workflow", "dead", "reveal", things.dead, *WHY, "--url", where[0])
    assert shown["payload"]["execution_id"] == "none"
    assert "execution_id" in run("workflow", "dead", "reveal", things.dead, *WHY, "--url", where[0]).stdout


def test_a_server_reveals_only_to_those_who_may(run: Run, own: Holdfast, things: Things) -> None:
    own.access.add_user("ann", "correct horse battery", "admin")
    looks = own.access.create_token("looks", role="viewer")[1]
    with served(own) as at:
        denied = run("letters", "reveal", things.letter, *WHY, "--url", at, env={"HOLDFAST_TOKEN": looks}, code=1)
    assert "letters:reveal" in denied.stderr
    assert SECRET not in denied.output


def test_nothing_is_revealed_that_the_trail_cannot_be_told_of(run: Run, url: str) -> None:
    with shop.keyed() as own:
        id = own.letters.create("payments", "F", request_data={"token": SECRET}).id
        with own.sessions.begin() as session:
            own.outbox.put(session, "publish", {"x": 1}, target="t")
        own.audit.append(_event())
    refused = run("letters", "reveal", id, *WHY, code=ExitCode.FAILED)
    assert "another key" in refused.stderr
    assert SECRET not in refused.output


def _event() -> Any:
    from holdfast.audit.event import AuditEvent, AuditEventType

    return AuditEvent(event_type=AuditEventType.OPERATOR_ACTED, subject_ref="operator:ann", payload={"act": "x"})


def test_a_stage_that_is_not_there_is_said(run: Run, things: Things) -> None:
    run("workflow", "reveal", things.flow, "--stage", "none", *WHY, code=ExitCode.NOT_FOUND)
    run("letters", "reveal", "none", *WHY, code=ExitCode.NOT_FOUND)
