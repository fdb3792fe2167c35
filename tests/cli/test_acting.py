"""What is done through a server: bulk operations, the outbox, sagas, the audit trail, workflows and their schedules."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import UUID

import pytest
import sqlalchemy as sa

from holdfast.app import Holdfast
from holdfast.cli.exits import ExitCode
from tests.cli import shop
from tests.cli.conftest import Run, lines
from tests.cli.served import served
from tests.cli.things import Things, filled

Said = Callable[..., str]
WHY = ("--reason", "provider is back")


@pytest.fixture
def own(run: Run) -> Iterator[Holdfast]:
    with shop.whole() as own:
        yield own


@pytest.fixture
def things(own: Holdfast, monkeypatch: pytest.MonkeyPatch) -> Things:
    return filled(own, monkeypatch)


@pytest.fixture
def at(own: Holdfast, things: Things) -> Iterator[str]:
    with served(own) as url:
        yield url


@pytest.fixture
def said(run: Run, at: str) -> Said:
    """What a command says about the server."""
    return lambda *args, code=0: run(*args, "--url", at, code=code).stdout


def status(own: Holdfast, id: str) -> str:
    entry = own.outbox.get(UUID(id))
    assert entry is not None
    return str(entry.status)


def test_a_bulk_operation_is_counted_started_and_seen_through(run: Run, own: Holdfast, said: Said, at: str) -> None:
    preview = said("letters", "bulk", "discard", "--domain", "payments")
    assert preview.startswith("3 letters would be touched (domain payments)")
    assert own.letters.count(status="pending", domain="payments") == 3
    wants = run("letters", "bulk", "discard", "--domain", "payments", "--yes", "--url", at, code=ExitCode.USAGE)
    assert "--reason" in wants.stderr
    done = json.loads(said("letters", "bulk", "discard", "--domain", "payments", "--yes", *WHY, "--json"))
    assert (done["state"], done["succeeded"], done["requested_by"], done["reason"]) == ("done", 3, "local", WHY[1])
    assert own.letters.count(status="rejected", domain="payments") == 3


def test_a_bulk_operation_that_waits_is_aborted(run: Run, own: Holdfast, said: Said, at: str) -> None:
    id = said("letters", "bulk", "replay", "--domain", "payments", "--yes", "--detach", *WHY).splitlines()[-1]
    assert "pending" in said("letters", "bulk", "status", id)
    assert "aborted" in said("letters", "bulk", "abort", id)
    over = run("letters", "bulk", "abort", id, "--url", at, code=ExitCode.FAILED).stderr
    assert "is over already" in over
    run("letters", "bulk", "status", "none", "--url", at, code=ExitCode.NOT_FOUND)


def test_entries_are_requeued_by_name_and_by_filter(
    run: Run, own: Holdfast, things: Things, said: Said, at: str
) -> None:
    assert said("outbox", "requeue", things.entry) == "requeued 1 entry\n"
    assert status(own, things.entry) == "pending"
    assert said("outbox", "requeue", "--target", "mail").startswith("1 entry would be requeued (target mail)")
    assert status(own, things.again) == "abandoned"
    done = json.loads(said("outbox", "requeue", "--target", "mail", "--yes", *WHY, "--json"))
    assert done == {"matched": 1, "requeued": 1, "refused": []}
    assert status(own, things.again) == "pending"
    refused = run("outbox", "requeue", things.again, "--url", at, code=ExitCode.FAILED).stderr
    assert "only abandoned entries can be requeued" in refused
    run("outbox", "requeue", str(UUID(int=1)), "--url", at, code=ExitCode.NOT_FOUND)
    acts = {one.event.payload.get("act"): one.event.payload.get("reason") for one in own.audit.newest(limit=9).events}
    assert acts["outbox.requeue_matching"] == WHY[1]


def test_entries_are_cancelled_and_asked_about_again(own: Holdfast, things: Things, said: Said) -> None:
    said("outbox", "requeue", things.entry)
    assert said("outbox", "cancel", "--operation", "send", "--yes", *WHY).endswith("cancelled 1 entry\n")
    assert status(own, things.entry) == "abandoned"
    assert things.verified in said("outbox", "verify", code=1)
    assert said("outbox", "verify", "--all", "--yes").endswith("asked about 1 entry\n")
    entry = own.outbox.get(UUID(things.verified))
    assert entry is not None
    assert entry.verification == "pending"


def test_a_server_without_the_program_says_what_it_cannot_requeue(run: Run, url: str, things: Things) -> None:
    with Holdfast(url) as bare, served(bare, has_program=False) as at:
        error = run("outbox", "requeue", things.entry, "--url", at, code=ExitCode.FAILED).stderr
        assert "nobody here knows operation 'send'" in error
        hidden = run("outbox", "show", things.entry, "--url", at)
        assert "its values are hidden" in hidden.stderr


def test_a_queue_is_paused_and_resumed(run: Run, own: Holdfast, said: Said, at: str) -> None:
    assert "--reason" in run("outbox", "pause", "slow", "--url", at, code=ExitCode.USAGE).stderr
    assert said("outbox", "pause", "slow", *WHY) == "queue slow is paused\n"
    assert WHY[1] in said("outbox", "paused")
    run("outbox", "pause", "slow", *WHY, "--url", at, code=ExitCode.FAILED)
    assert said("outbox", "resume", "slow") == "queue slow is resumed\n"
    assert own.outbox.paused() == ()


def test_a_saga_is_cancelled_and_what_it_cannot_do_is_said(
    run: Run, own: Holdfast, things: Things, said: Said, at: str
) -> None:
    stuck = run("saga", "resume", things.saga, "--url", at, code=ExitCode.FAILED).stderr
    assert "not stuck" in stuck
    nothing = run("saga", "resolve", things.saga, "charge", *WHY, "--url", at, code=ExitCode.FAILED).stderr
    assert "has given up nothing in step 'charge'" in nothing
    assert said("saga", "cancel", things.saga) == f"saga {things.saga} is compensated\n"
    run("saga", "show", str(UUID(int=1)), "--url", at, code=ExitCode.NOT_FOUND)
    assert [one["saga_id"] for one in json.loads(said("saga", "list", "--json"))["items"]] == [things.saga]


def test_the_trail_is_verified_and_a_broken_one_fails(run: Run, own: Holdfast, said: Said, at: str) -> None:
    assert said("audit", "verify").startswith("verified: ")
    shown = json.loads(said("audit", "verify", "--json"))
    assert (shown["verified"], shown["broken"]) == (True, [])
    events = own.works.tables.audit_events
    with own.works.engine.begin() as connection:
        first = connection.execute(sa.select(events.c.event_id, events.c.stream).order_by(events.c.seq)).first()
        assert first is not None
        connection.execute(events.update().where(events.c.event_id == first.event_id).values(subject_ref="forged"))
    [broken] = json.loads(said("audit", "verify", "--stream", first.stream, "--json", code=1))["broken"]
    assert (broken["first_broken_event_id"], broken["reason"]) == (str(first.event_id), "hash")
    assert "it is not what was" in said("audit", "verify", code=1)
    run("audit", "verify", "--stream", "none", "--url", at, code=ExitCode.NOT_FOUND)


def test_checkpoints_are_taken_and_carried_away(run: Run, own: Holdfast, said: Said, at: str, tmp_path: Path) -> None:
    out = tmp_path / "checkpoints.jsonl"
    assert "STREAM" in said("audit", "checkpoint", "--out", str(out))
    assert own.audit.import_checkpoints(out.read_text())
    for more in (["--checkpoints", str(out)], ["--key-file", str(out)], ["--prefix", "other_"]):
        assert "is a server" in run("audit", "verify", *more, "--url", at, code=ExitCode.USAGE).stderr


def test_the_doctor_looks_at_the_program_of_the_server(run: Run, said: Said, at: str) -> None:
    found = json.loads(said("doctor", "--strict", "--json", code=1))
    assert "HF305" in {one["rule"] for one in found["findings"]}
    assert "HF305" in said("doctor")
    left = json.loads(said("doctor", "--ignore", "HF305", "--json"))
    assert "HF305" not in {one["rule"] for one in left["findings"]}
    assert "--app" in run("doctor", "--policies", "--url", at, code=ExitCode.USAGE).stderr
    run("doctor", "--ignore", "HF999", "--url", at, code=ExitCode.USAGE)


def test_workflows_are_started_and_forked_by_the_server(
    run: Run, own: Holdfast, things: Things, said: Said, at: str
) -> None:
    given = ("start", "fulfil", "--input", '{"order": {"id": 5}}', "--key", "order-5", "--json")
    made = json.loads(said("workflow", *given))
    assert (made["status"], json.loads(said("workflow", *given))["id"]) == ("RUNNING", made["id"])
    assert own.workflows.workflow(made["id"]).context == {"order": {"id": 5}}
    missing = run("workflow", "start", "nope", "--url", at, code=ExitCode.NOT_FOUND).stderr
    assert "there are" in missing
    forked = json.loads(said("workflow", "fork", things.failed, "--from", "charge", "--json", *WHY))
    assert own.workflows.workflow(forked["id"]).forked_from == (things.failed, "charge")
    assert [one.facts["reason"] for one in own.workflows.log(forked["id"]) if one.type == "forked"] == [WHY[1]]
    run("workflow", "start", "fulfil", "--input", "{}", "--url", at, code=ExitCode.USAGE)


def test_a_server_without_the_program_starts_nothing(run: Run, url: str, things: Things) -> None:
    with Holdfast(url) as bare, served(bare, has_program=False) as at:
        assert "none" in run("workflow", "start", "fulfil", "--url", at, code=ExitCode.NOT_FOUND).stderr
        refused = run("workflow", "schedule", "run", "daily", "--url", at, code=ExitCode.FAILED).stderr
        assert "serve with --app" in refused


def test_a_workflow_is_watched_to_its_end(own: Holdfast, things: Things, said: Said) -> None:
    own.workflows.signal(things.flow, "approved")
    worker = own.workflows.worker()
    worker.run_once()
    worker.close()
    seen = said("workflow", "watch", things.flow)
    assert seen.splitlines()[-1] == f"workflow {things.flow} is SUCCEEDED"
    assert "workflow_ended" in seen


def test_a_signal_goes_to_a_stage_and_only_once(things: Things, said: Said) -> None:
    given = ("workflow", "signal", things.flow, "approved", "--stage", "wait_signal", "--key", "one", "--json")
    assert json.loads(said(*given))["taken"] is True
    assert json.loads(said(*given))["taken"] is False


def test_a_stage_is_cancelled_with_what_comes_after_it(run: Run, things: Things, said: Said, at: str) -> None:
    for where in ((), ("--url", at)):
        done = run("workflow", "cancel", things.flow, "--stage", "charge", *where, code=ExitCode.FAILED).stderr
        assert f"stage 'charge' of workflow {things.flow} is SUCCEEDED already" in done
        run("workflow", "cancel", things.flow, "--stage", "none", *where, code=ExitCode.NOT_FOUND)
    assert said("workflow", "cancel", things.flow, "--stage", "wait_signal") == f"workflow {things.flow} is CANCELED\n"
    for where in ((), ("--url", at)):
        over = run("workflow", "cancel", things.flow, "--stage", "ship", *where, code=ExitCode.FAILED).stderr
        assert f"workflow {things.flow} is CANCELED already" in over
    run("workflow", "cancel", things.failed, "--stage", "none", "--url", at, code=ExitCode.FAILED)


def test_what_workflows_left_behind_is_seen_to(run: Run, own: Holdfast, things: Things, said: Said, at: str) -> None:
    assert said("workflow", "finalize", things.finalizer) == "1 finalizer will be run by a worker\n"
    run("workflow", "finalize", things.finalizer, "--url", at, code=ExitCode.FAILED)
    run("workflow", "finalize", "none", "--url", at, code=ExitCode.NOT_FOUND)
    assert said("workflow", "dead", "replay", things.dead) == f"replayed: {things.dead}\n"
    assert said("workflow", "dead", "discard", things.gone, "--yes") == f"discarded: {things.gone}\n"
    assert own.workflows.dead.count() == 0
    assert json.loads(said("workflow", "recover", things.flow, "--json"))["looked_at"] == 1


def test_schedules_are_made_held_run_and_removed(run: Run, own: Holdfast, said: Said, at: str) -> None:
    add = ("workflow", "schedule", "add", "nightly", "fulfil", "--input", '{"order": {"id": 1}}')
    made = json.loads(said(*add, "--cron", "0 3 * * *", "--timezone", "Europe/Berlin", "--json"))
    assert (made["timezone"], made["paused"]) == ("Europe/Berlin", False)
    assert "is paused" in said("workflow", "schedule", "pause", "nightly")
    assert "ticks next at" in said("workflow", "schedule", "resume", "nightly")
    started = json.loads(said("workflow", "schedule", "run", "nightly", "--json"))["workflow"]
    assert own.workflows.record(started).name == "fulfil"
    assert said("workflow", "schedule", "delete", "nightly") == "schedule 'nightly' is deleted\n"
    run("workflow", "schedule", "show", "nightly", "--url", at, code=ExitCode.NOT_FOUND)
    assert "cron" in run(*add, "--cron", "often", "--url", at, code=ExitCode.USAGE).stderr


def test_a_prefix_needs_the_database(run: Run, at: str) -> None:
    assert "--prefix needs the database itself" in run(
        "outbox", "list", "--prefix", "shop_", "--url", at, code=ExitCode.USAGE
    ).stderr  # fmt: skip


def test_users_and_roles_are_shown(run: Run, own: Holdfast, said: Said, at: str, url: str) -> None:
    own.access.add_user("ann", "correct horse battery", "admin")
    token = own.access.create_token("ci", role="admin")[1]
    for where in (url, at):
        env = {"HOLDFAST_TOKEN": token}
        shown = run("access", "show-user", "ann", "--url", where, env=env).stdout
        assert "can sign in" in shown
        run("access", "show-user", "bob", "--url", where, env=env, code=ExitCode.NOT_FOUND)
        title, *rows = lines(run("access", "roles", "--url", where, env=env))
        assert title.split() == ["RESOURCE", "VIEWER", "OPERATOR", "ADMIN"]
        assert rows[0].split()[:4] == ["letters", "read", "read", "operate"] or "letters" in " ".join(rows)
