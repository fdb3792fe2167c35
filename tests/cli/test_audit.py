"""Verifying the audit trail, looking at it, and taking checkpoints of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import sqlalchemy as sa

from holdfast.app import Holdfast
from holdfast.audit.checkpoints import import_checkpoints
from holdfast.audit.sink import DatabaseAuditSink
from holdfast.cli.exits import ExitCode
from holdfast.outbox.tables import bind_tables
from tests.audit.trail import event, execute, fill, sink_on
from tests.cli import shop
from tests.cli.conftest import Run
from tests.databases import METADATA, TABLES, Database, open_database

EVENTS, HEADS = TABLES.audit_events, TABLES.chain_heads
SECRET = "s3cret-of-the-trail"
KEYED: dict[str, str | None] = {"HOLDFAST_AUDIT_KEY": SECRET}


@pytest.fixture(autouse=True)
def _without_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOLDFAST_AUDIT_KEY", raising=False)


@pytest.fixture
def database(url: str) -> Iterator[Database]:
    database = open_database("sqlite", url)
    METADATA.create_all(database.engine)
    yield database
    database.engine.dispose()


def test_an_untouched_trail_is_verified(run: Run, answer: Any, database: Database) -> None:
    assert run("audit", "verify").stderr == "no event of this trail is chained\n"
    fill(sink_on(database, streams="subject"), 10, subjects=2)
    assert run("audit", "verify").stdout == "verified: 10 events in 2 streams\n"
    assert run("audit", "verify", "--stream", "subject-1").stdout == "verified: 5 events in 1 stream\n"
    shown = answer("audit", "verify")
    assert shown == {"verified": True, "events": 10, "streams": 2, "broken": []}


def test_a_broken_trail_fails_and_names_its_first_broken_event(run: Run, answer: Any, database: Database) -> None:
    fill(sink_on(database, streams=1), 10)
    execute(database, EVENTS.delete().where(EVENTS.c.seq == 4))
    result = run("audit", "verify", code=ExitCode.FAILED, env={"COLUMNS": "200"})
    assert result.stdout.splitlines() == [
        "STREAM  INTACT  FIRST BROKEN EVENT                    WHY  MEANING",
        f"all          3  {event(4).event_id}  gap  events before it are missing, or its number is wrong",
    ]
    assert result.stderr == "1 of 1 stream is broken\n"
    shown = answer("audit", "verify", code=ExitCode.FAILED)
    assert (shown["verified"], shown["broken"][0]["first_broken_event_id"]) == (False, str(event(4).event_id))


def test_the_key_comes_from_the_environment_and_is_never_shown(run: Run, database: Database) -> None:
    fill(sink_on(database, key=SECRET), 3)
    assert run("audit", "verify", env=KEYED).exit_code == 0
    for env in ({}, {"HOLDFAST_AUDIT_KEY": "wrong-" + SECRET}):
        result = run("audit", "verify", code=ExitCode.FAILED, env=env)
        assert SECRET not in result.output
    raw = sink_on(database, key=bytes.fromhex("ab" * 16), streams="subject")
    raw.append(event(50, "bob"))
    assert run("audit", "verify", "--stream", "bob", env={"HOLDFAST_AUDIT_KEY": "AB" * 16}).exit_code == 0


def test_a_checkpoint_that_was_carried_away_shows_what_was_cut_off(
    run: Run, answer: Any, database: Database, tmp_path: Path
) -> None:
    out = tmp_path / "checkpoints.jsonl"
    fill(sink_on(database, streams=1, key=SECRET), 3)
    result = run("audit", "checkpoint", "--out", str(out), env=KEYED)
    assert result.stdout.splitlines()[0].split() == ["STREAM", "SEQ", "HASH"]
    assert result.stderr == f"1 checkpoint is in {out}\n"
    assert SECRET not in out.read_text()
    assert "signature" in json.loads(out.read_text())
    checkpoints = ("--checkpoints", str(out))
    assert run("audit", "verify", *checkpoints, env=KEYED).exit_code == 0
    for table in (EVENTS, HEADS, TABLES.checkpoints):
        execute(database, table.delete())
    assert run("audit", "verify", env=KEYED).exit_code == 0
    shown = answer("audit", "verify", *checkpoints, code=ExitCode.FAILED, env=KEYED)
    assert shown["broken"][0]["reason"] == "checkpoint"
    out.write_text(out.read_text().replace('"seq":3', '"seq":0'))
    refused = run("audit", "verify", *checkpoints, code=ExitCode.FAILED, env=KEYED)
    assert "line 1 was not signed with this key" in refused.stderr


@pytest.mark.parametrize(
    ("held", "key"),
    [
        (SECRET.encode(), SECRET),
        (f"{SECRET}\n".encode(), SECRET),
        (b"ab" * 16 + b"\r\n", bytes.fromhex("ab" * 16)),
        (b"\xff\x00 raw\n", b"\xff\x00 raw\n"),
    ],
    ids=["text", "line", "hexadecimal", "bytes"],
)
def test_the_key_may_be_in_a_file(run: Run, database: Database, tmp_path: Path, held: bytes, key: Any) -> None:
    file, out = tmp_path / "key", tmp_path / "checkpoints.jsonl"
    file.write_bytes(held)
    fill(sink_on(database, streams=1, key=key), 3)
    here = ("--key-file", str(file))
    run("audit", "checkpoint", "--out", str(out), *here, env={"HOLDFAST_AUDIT_KEY": "another"})
    assert import_checkpoints(out.read_text(), key)[0].seq == 3
    run("audit", "verify", "--checkpoints", str(out), *here)
    run("audit", "verify", "--checkpoints", str(out), code=ExitCode.FAILED)


def test_a_file_without_a_key_is_said(run: Run, database: Database, tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("\n")
    assert "there is no key in " in run("audit", "verify", "--key-file", str(file), code=ExitCode.USAGE).stderr
    run("audit", "verify", "--key-file", str(tmp_path / "none"), code=ExitCode.USAGE)


def test_checkpoints_are_appended_to_their_file_and_printed_as_json(
    run: Run, answer: Any, database: Database, tmp_path: Path
) -> None:
    out = tmp_path / "checkpoints.jsonl"
    assert run("audit", "checkpoint").stderr == "no event of this trail is chained\n"
    sink = sink_on(database, streams=1)
    for number in (1, 2):
        sink.append(event(number))
        shown = answer("audit", "checkpoint", "--out", str(out))
        assert [(one["stream"], one["seq"]) for one in shown["checkpoints"]] == [("all", number)]
    assert [json.loads(line)["seq"] for line in out.read_text().splitlines()] == [1, 2]
    assert run("audit", "verify", "--checkpoints", str(out)).exit_code == 0


def test_the_events_of_a_subject_and_of_an_entry_are_shown(run: Run, answer: Any, database: Database) -> None:
    sink = sink_on(database, streams=1)
    sink.append(event(1, entry_id=UUID(int=7), payload={"target": "crm", "external": True, "attempts": 2}))
    sink.append(event(2, "bob", event_type="card_charged", payload={}))
    assert run("audit", "show", "ann", env={"COLUMNS": "200"}).stdout.splitlines() == [
        "OCCURRED                 TYPE               SUBJECT  ENTRY                                 PLACE  FACTS",
        "2026-03-01 12:00:01 UTC  erasure_requested  ann      00000000-0000-0000-0000-000000000007  all:1  "
        "target=crm external=true attempts=2",
    ]
    (shown,) = answer("audit", "show", "--entry", str(UUID(int=7)))["events"]
    assert (shown["subject_ref"], shown["seq"], shown["payload"]["attempts"]) == ("ann", 1, 2)
    assert shown["occurred_at"] == "2026-03-01T12:00:01.000001Z"
    (foreign,) = answer("audit", "show", "bob")["events"]
    assert (foreign["event_type"], foreign["entry_id"]) == ("card_charged", None)
    assert len(answer("audit", "show", "--since", "2026-03-01T12:00:02")["events"]) == 1


def test_pages_of_events_follow_each_other(answer: Any, run: Run, database: Database) -> None:
    fill(sink_on(database), 5)
    seen: list[int] = []
    after: list[str] = []
    while True:
        page = answer("audit", "show", "ann", "--limit", "2", *after)
        seen += [one["payload"]["refs"] for one in page["events"]]
        if page["next"] is None:
            break
        after = ["--after", page["next"]]
    assert seen == [0, 1, 2, 3, 4]
    assert "there are more: --after" in run("audit", "show", "ann", "--limit", "2").stderr


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (("show",), ExitCode.USAGE, "whose events?"),
        (("show", "nobody"), ExitCode.NOT_FOUND, "no event of nobody"),
        (("show", "--entry", str(UUID(int=1))), ExitCode.NOT_FOUND, "no event of entry"),
        (("show", "--entry", "x"), ExitCode.USAGE, "not a valid UUID"),
        (("show", "ann", "--after", "x"), ExitCode.USAGE, "no cursor"),
        (("verify", "--stream", "99"), ExitCode.NOT_FOUND, "no stream '99'"),
        (("verify", "--checkpoints", "/nowhere"), ExitCode.USAGE, "does not exist"),
        (("verify", "--prefix", "other_"), ExitCode.NO_STORE, "no table other_audit_events"),
        (("verify", "--url", "redis://127.0.0.1:1/0"), ExitCode.USAGE, "they need a SQL database"),
        (("verify", "--url", "sqlite:////nowhere.db"), ExitCode.NO_STORE, "no database at"),
        (("verify", "--url", "memory://"), ExitCode.USAGE, "they need a SQL database"),
        (("verify", "--url", "sqlite://"), ExitCode.USAGE, "lives in one process only"),
        (("verify", "--url", "postgresql://u:pass@127.0.0.1:1/x"), ExitCode.NO_STORE, "cannot be reached"),
    ],
    ids=str,
)
def test_what_is_not_there_is_said(run: Run, database: Database, args: Any, code: ExitCode, said: str) -> None:
    result = run("audit", *args, code=code)
    assert said in result.stderr
    assert "pass@" not in result.output


def test_outcomes_of_a_programs_functions_are_read_and_verified_without_the_program(
    run: Run, answer: Any, hold: Holdfast
) -> None:
    hold.operation("charge")(lambda order: None)
    with hold.sessions.begin() as session:
        hold.outbox.put(session, "charge", {"order": "o-1"}, target="bank", subject_id="o-1")
    asyncio.run(hold.runner().run_once())
    assert "operation_succeeded" in run("audit", "show", "o-1").stdout
    (shown,) = answer("audit", "show", "o-1")["events"]
    assert shown["payload"] == {"operation": "charge", "target": "bank", "external": True, "attempts": 1}
    assert run("audit", "verify").stdout == "verified: 1 event in 1 stream\n"
    assert len(answer("audit", "checkpoint")["checkpoints"]) == 1


def test_tables_of_another_prefix_are_found(run: Run, database: Database) -> None:
    metadata = sa.MetaData()
    tables = bind_tables(metadata, "shop_")
    metadata.create_all(database.engine)
    fill(sink_on(database._replace(tables=tables)), 2)
    assert run("audit", "verify", "--prefix", "shop_").stdout == "verified: 2 events in 1 stream\n"


def test_a_program_brings_its_own_trail_and_key(run: Run, tmp_path: Path) -> None:
    here: dict[str, str | None] = {"HOLDFAST_APP": "tests.cli.shop:keyed", "HOLDFAST_URL": None}
    with shop.keyed() as hold:
        hold.audit.append(event(1))
        metadata = sa.MetaData()
        other = bind_tables(metadata, "other_")
        metadata.create_all(hold.works.engine)
        fill(DatabaseAuditSink(hold.sessions, other.audit_events, chain_heads=other.chain_heads), 2)
    assert run("audit", "verify", env=here).stdout == "verified: 1 event in 1 stream\n"
    out = tmp_path / "checkpoints.jsonl"
    run("audit", "checkpoint", "--out", str(out), env=here)
    assert import_checkpoints(out.read_text(), b"k3y-of-the-trail")[0].seq == 1
    run("audit", "verify", "--checkpoints", str(out), env=here)
    out.write_text(out.read_text().replace('"seq":1', '"seq":0'))
    refused = run("audit", "verify", "--checkpoints", str(out), code=ExitCode.FAILED, env=here)
    assert "line 1 was not signed with this key" in refused.stderr
    assert run("audit", "verify", code=ExitCode.FAILED).stderr == "1 of 1 stream is broken\n"
    assert run("audit", "verify", "--prefix", "other_", env=here).stdout == "verified: 2 events in 1 stream\n"
