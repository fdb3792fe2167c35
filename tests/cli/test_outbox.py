"""Looking at the outbox, requeueing, cancelling and pruning; on SQLite here, on the other databases in test_stores."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
import sqlalchemy as sa

from holdfast.app import Holdfast
from holdfast.cli.exits import ExitCode
from tests.cli import shop
from tests.cli.conftest import Run, lines
from tests.outbox.entries import enqueue, make_entry, make_rectify

Answer = Callable[..., Any]
Put = Callable[..., str]
APP: dict[str, str | None] = {"HOLDFAST_APP": shop.CALLING, "HOLDFAST_URL": None}
MAIL = "ann@example.org"


@pytest.fixture
def hold(url: str, run: Run) -> Iterator[Holdfast]:
    with shop.calling() as hold:
        yield hold


@pytest.fixture
def put(hold: Holdfast) -> Put:
    """Puts a call into the outbox; its id."""

    def put(operation: str = "send", order: str = "o-1", *, target: str = "mail", **more: Any) -> str:
        payload = {"order_id": order, **more.pop("payload", {})}
        with hold.sessions.begin() as session:
            return str(hold.outbox.put(session, operation, payload, target=target, **more))

    return put


@pytest.fixture
def abandoned(hold: Holdfast, put: Put, monkeypatch: pytest.MonkeyPatch) -> Put:
    """Puts a call into the outbox and lets it fail for good; its id."""

    def abandoned(*args: Any, **more: Any) -> str:
        id = put(*args, **more)
        with monkeypatch.context() as down:
            down.setenv(shop.DOWN, "1")
            hold.worker(queues=(more.get("queue", "default"),)).run_once()
        return id

    return abandoned


def status(hold: Holdfast, id: str) -> str:
    entry = hold.outbox.get(UUID(id))
    assert entry is not None
    return str(entry.status)


def test_entries_are_listed_newest_first_in_the_width_of_a_terminal(run: Run, put: Put, abandoned: Put) -> None:
    first, second = abandoned(), put(target="a-publisher-with-a-long-name", delay=timedelta(hours=3))
    assert lines(run("outbox", "list")) == [
        "ID                                    STATUS     OPERATION  AGE  ERROR",
        f"{second}  pending    send        0s",
        f"{first}  abandoned  send        0s  ConnectionError",
    ]
    wide = lines(run("outbox", "list", env={"COLUMNS": "150"}))
    assert wide[0].split() == ["ID", "STATUS", "OPERATION", "TARGET", "TRIES", "AGE", "DUE", "ERROR"]
    assert wide[1].split()[3:] == ["a-publisher-with-a-long-name", "0", "0s", "2h"]


def test_facets_fit_a_terminal_however_many_targets_there_are(run: Run, put: Put) -> None:
    targets = [f"a-publisher-{n}" for n in range(12)]
    for target in targets:
        put(target=target)
    shown = run("outbox", "facets", env={"COLUMNS": "80"}).stdout
    assert max(map(len, shown.splitlines())) <= 80
    assert all(target in shown for target in targets)


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["--status", "abandoned"], [0]),
        (["--operation", "keep"], [1]),
        (["--target", "crm"], [2]),
        (["--subject", "ann"], [3]),
        (["--key", "k-4"], [4]),
        (["--queue", "slow"], [5]),
        (["--error", "ConnectionError"], [0]),
        (["--status", "pending", "--key", "k-4"], [4]),
        (["--status", "abandoned", "--queue", "slow"], []),
    ],
)
def test_filters_narrow_a_list_down(
    answer: Answer, put: Put, abandoned: Put, args: list[str], expected: list[int]
) -> None:
    ids = [
        abandoned(), put("keep"), put(target="crm"), put(subject_id="ann"), put(key="k-4"), put(queue="slow"),
    ]  # fmt: skip
    assert [ids.index(one["entry_id"]) for one in answer("outbox", "list", *args)["items"]] == expected


def test_pages_follow_each_other(run: Run, answer: Answer, put: Put) -> None:
    ids, seen, after = [put() for _ in range(5)], [], []
    while True:
        page = answer("outbox", "list", "--limit", "2", *after)
        seen += [one["entry_id"] for one in page["items"]]
        if page["next"] is None:
            break
        after = ["--after", page["next"]]
    assert seen == ids[::-1]
    assert run("outbox", "list", "--limit", "2").stderr == f"there are more: --after {ids[3]}\n"


def test_one_entry_is_shown_with_its_attempts_and_its_audit_events(run: Run, answer: Answer, abandoned: Put) -> None:
    id = abandoned(key="order-1", payload={"token": "t0ken", "mail": MAIL})
    shown = run("outbox", "show", id, env=APP)
    assert shown.stdout.splitlines()[:4] == [
        f"id         {id}",
        "status     abandoned",
        "operation  send",
        "target     mail",
    ]
    for section in ("\npayload\norder_id  o-1\ntoken     ***\n", "\nattempts\n#  STARTED", "\naudit trail\nOCCURRED"):
        assert section in shown.stdout
    assert "send_failed" in shown.stdout
    assert MAIL not in shown.stdout
    full = answer("outbox", "show", id, env=APP)
    assert full["payload"] == {"order_id": "o-1", "token": "***", "mail": "***@***"}
    [made] = full["history"]
    assert (made["number"], made["outcome"], made["error"]) == (1, "abandoned", "ConnectionError")
    assert [(one["event_type"], one["entry_id"]) for one in full["events"]] == [("send_failed", id)]


def test_sensitive_payloads_and_those_of_unknown_operations_show_only_their_names(
    run: Run, answer: Answer, put: Put
) -> None:
    charge, send = put("charge", payload={"mail": MAIL}), put("send", "o-7")
    assert answer("outbox", "show", charge, env=APP)["payload"] == {"order_id": "***", "mail": "***"}
    assert answer("outbox", "show", send)["payload"] == {"order_id": "***"}
    assert "nobody here knows operation 'send'; --app of its program shows them" in run("outbox", "show", send).stderr
    assert run("outbox", "show", send, env=APP).stderr == ""


def test_corrections_and_claim_tokens_are_never_shown(run: Run, answer: Answer, hold: Holdfast) -> None:
    rectify = make_rectify("ann", at=datetime.now(UTC))
    enqueue(hold.outbox, rectify)
    [held] = hold.outbox.claim_batch()
    shown = answer("outbox", "show", str(rectify.entry_id))
    assert shown["corrections"] == [{"category": "contact", "value": "***"}]
    assert (shown["status"], shown["claimed_by"]) == ("in_flight", hold.outbox.name)
    text = run("outbox", "show", str(rectify.entry_id)).stdout
    assert "held until" in text
    for secret in ("new@example.org", str(held.claim_token)):
        assert secret not in text + json.dumps(shown)


def test_what_was_given_up_and_what_was_put_off_have_lists_of_their_own(
    run: Run, answer: Answer, hold: Holdfast, put: Put, abandoned: Put
) -> None:
    assert run("outbox", "abandoned").stderr == "no entry is abandoned\n"
    assert run("outbox", "scheduled").stderr == "no entry is scheduled\n"
    gone, kept = [abandoned() for _ in range(2)], put("keep", target="crm")
    hold.worker().run_once()
    assert [one["entry_id"] for one in answer("outbox", "abandoned")["items"]] == gone
    assert lines(run("outbox", "abandoned", "--limit", "1"))[1].split()[0] == gone[0]
    assert "a higher --limit" in run("outbox", "abandoned", "--limit", "1").stderr
    assert lines(run("outbox", "scheduled"))[1].split()[:3] == [kept, "keep", "crm"]
    assert [one["parks"] for one in answer("outbox", "scheduled")["items"]] == [1]


def test_counts_are_by_queue_and_status_with_the_lag_of_each(
    run: Run, answer: Answer, put: Put, abandoned: Put
) -> None:
    assert lines(run("outbox", "counts"))[1].split() == ["default", *"000000"]
    abandoned(), put(), put(queue="slow"), put(queue="slow", delay=timedelta(hours=1))
    run("outbox", "pause", "slow", "--reason", "flood", "--by", "ann")
    said = lines(run("outbox", "counts"))
    assert said[:4] == [
        "QUEUE    PENDING  IN_FLIGHT  SUCCEEDED  FAILED  SCHEDULED  ABANDONED  LAG",
        "default        1          0          0       0          0          1   0s",
        "slow           2          0          0       0          0          0   0s",
        "total          3          0          0       0          0          1",
    ]
    assert said[4:6] == ["", "paused"]
    assert said[7].split()[-2:] == ["ann", "flood"]
    counts = answer("outbox", "counts")
    assert counts["by_status"] == {
        "pending": 3, "in_flight": 0, "succeeded": 0, "failed": 0, "scheduled": 0, "abandoned": 1,
    }  # fmt: skip
    default, slow = counts["queues"]
    assert (default["queue"], default["paused"], slow["queue"], slow["paused"]) == ("default", False, "slow", True)
    assert slow["oldest_due"].endswith("Z")
    assert 0 <= slow["lag_s"] < 60


def test_a_queue_is_paused_until_it_is_resumed(run: Run, answer: Answer, hold: Holdfast, put: Put) -> None:
    id = put()
    assert run("outbox", "paused").stderr == "no queue is paused\n"
    assert run("outbox", "pause", "default", "--by", "ann").stdout == "queue default is paused\n"
    assert "is paused already" in run("outbox", "pause", "default", code=ExitCode.FAILED).stderr
    [paused] = answer("outbox", "paused")["paused"]
    assert (paused["queue"], paused["paused_by"], paused["reason"]) == ("default", "ann", None)
    hold.worker().run_once()
    assert status(hold, id) == "pending"
    run("outbox", "resume", "default")
    assert "is not paused" in run("outbox", "resume", "default", code=ExitCode.FAILED).stderr
    hold.worker().run_once()
    assert status(hold, id) == "succeeded"
    assert "it is empty" in run("outbox", "pause", "typo").stderr


def test_named_entries_are_requeued_together_or_not_at_all(
    run: Run, answer: Answer, hold: Holdfast, put: Put, abandoned: Put
) -> None:
    ids, scrubbed, waiting = [abandoned(), abandoned()], abandoned("charge"), put(delay=timedelta(hours=1))
    error = run("outbox", "requeue", ids[0], waiting, env=APP, code=ExitCode.FAILED).stderr
    assert error == f"holdfast: entry {waiting} is pending; only abandoned entries can be requeued\n"
    error = run("outbox", "requeue", ids[0], scrubbed, env=APP, code=ExitCode.FAILED).stderr
    assert f"entry {scrubbed} cannot be requeued: its payload was scrubbed" in error
    missing = str(uuid4())
    assert missing in run("outbox", "requeue", ids[0], missing, env=APP, code=ExitCode.NOT_FOUND).stderr
    assert run("outbox", "requeue", ids[0], "--dry-run", env=APP).stdout == "1 entry would be requeued\n"
    assert [status(hold, id) for id in ids] == ["abandoned", "abandoned"]
    assert answer("outbox", "requeue", *ids, env=APP) == {"matched": 2, "requeued": 2, "refused": []}
    assert [status(hold, id) for id in ids] == ["pending", "pending"]
    assert [str(one.event_type) for one in hold.audit.read_entry(UUID(ids[0]))] == ["send_failed", "send_requeued"]


def test_requeueing_what_matches_is_a_dry_run_unless_told_otherwise(run: Run, hold: Holdfast, abandoned: Put) -> None:
    ids, other = [abandoned(target="crm") for _ in range(2)], abandoned()
    asked = run("outbox", "requeue", "--target", "crm", env=APP)
    assert asked.stdout.splitlines() == [
        "2 entries would be requeued (target crm)",
        "",
        "OPERATION  TARGET  ENTRIES",
        "send       crm           2",
    ]
    assert asked.stderr == "dry run: nothing was done; --yes does it\n"
    assert status(hold, ids[0]) == "abandoned"
    assert run("outbox", "requeue", "--target", "crm", "--yes", env=APP).stdout.endswith("requeued 2 entries\n")
    assert [status(hold, id) for id in (*ids, other)] == ["pending", "pending", "abandoned"]
    assert run("outbox", "requeue", "--error", "Nothing", "--yes", env=APP).stdout.startswith("0 entries would be")


def test_what_cannot_be_requeued_does_not_keep_the_rest_of_what_matches(
    run: Run, answer: Answer, hold: Holdfast, abandoned: Put
) -> None:
    ids, scrubbed = [abandoned(), abandoned()], abandoned("charge")
    said = answer("outbox", "requeue", "--all", "--yes", env=APP, code=ExitCode.FAILED)
    assert (said["matched"], said["requeued"]) == (3, 2)
    assert [one["entry_id"] for one in said["refused"]] == [scrubbed]
    assert [status(hold, id) for id in ids] == ["pending", "pending"]
    again = run("outbox", "requeue", "--all", "--yes", env=APP, code=ExitCode.FAILED)
    assert "requeued 0 entries" in again.stdout
    assert f"entry {scrubbed} cannot be requeued" in again.stderr


def test_entries_that_wait_are_cancelled_and_audited(run: Run, answer: Answer, hold: Holdfast, put: Put) -> None:
    put("keep")
    hold.worker().run_once()
    named, matching, other = put(), put(queue="slow"), put(target="crm", delay=timedelta(hours=1))
    assert run("outbox", "cancel", named, env=APP).stdout == "cancelled 1 entry\n"
    assert [str(one.event_type) for one in hold.audit.read_entry(UUID(named))] == ["send_failed"]
    error = run("outbox", "cancel", named, env=APP, code=ExitCode.FAILED).stderr
    assert "is abandoned; only failed or pending or scheduled entries can be cancelled" in error
    assert "1 entry would be cancelled" in run("outbox", "cancel", "--queue", "slow", env=APP).stdout
    done = answer("outbox", "cancel", "--queue", "slow", "--yes", env=APP)
    assert done == {"matched": 1, "cancelled": 1, "refused": []}
    assert [status(hold, id) for id in (matching, other)] == ["abandoned", "pending"]
    assert answer("outbox", "cancel", "--status", "scheduled", "--yes", env=APP)["cancelled"] == 1
    assert answer("outbox", "cancel", "--all", "--yes", env=APP)["cancelled"] == 1


def test_a_call_that_runs_cannot_be_cancelled(run: Run, hold: Holdfast, put: Put) -> None:
    id = put()
    hold.outbox.claim_batch()
    assert "is in_flight" in run("outbox", "cancel", id, env=APP, code=ExitCode.FAILED).stderr


@pytest.mark.parametrize("command", ["requeue", "cancel"])
def test_what_nobody_here_knows_is_left_to_its_program(run: Run, put: Put, abandoned: Put, command: str) -> None:
    id = abandoned() if command == "requeue" else put()
    for which in ([id], ["--all", "--yes"]):
        error = run("outbox", command, *which, code=ExitCode.FAILED).stderr
        assert error == "holdfast: nobody here knows operation 'send'; give --app of the program that calls it\n"


@pytest.mark.parametrize("command", ["requeue", "cancel"])
@pytest.mark.parametrize("which", [[], ["--all", "--queue", "x"], [str(UUID(int=1)), "--all"]], ids=str)
def test_a_change_must_say_of_what(run: Run, hold: Holdfast, command: str, which: list[str]) -> None:
    assert f"say what to {command}" in run("outbox", command, *which, env=APP, code=ExitCode.USAGE).stderr


def test_an_act_without_the_key_of_the_trail_is_refused_and_does_not_break_it(run: Run, url: str) -> None:
    with Holdfast(url, audit_key=b"k3y-of-the-trail") as keyed:
        entry = make_entry("ann", at=datetime.now(UTC))
        enqueue(keyed.outbox, entry)
        id = str(entry.entry_id)
        keyed.outbox.cancel([entry.entry_id])
        error = run("outbox", "requeue", id, code=ExitCode.FAILED).stderr
        assert "written with another key" in error
        assert "HOLDFAST_AUDIT_KEY" in error
        run("outbox", "requeue", id, env={"HOLDFAST_AUDIT_KEY": "k3y-of-the-trail"})
        assert status(keyed, id) == "pending"
        assert all(one.verified for one in keyed.audit.verify_all())


def test_pruning_deletes_what_succeeded_and_nothing_else(
    run: Run, answer: Answer, hold: Holdfast, put: Put, abandoned: Put
) -> None:
    gone, done = abandoned(), [put() for _ in range(3)]
    hold.worker().run_once()
    waiting = put(delay=timedelta(hours=1))
    asked = run("outbox", "prune", "--older-than", "0")
    assert asked.stdout == "3 succeeded entries would be deleted\n"
    assert asked.stderr == "dry run: nothing was done; --yes does it\n"
    assert answer("outbox", "prune", "--older-than", "1", "--yes") == {"matched": 0, "pruned": 0}
    assert run("outbox", "prune", "--older-than", "0", "--yes").stdout.endswith("deleted 3 entries\n")
    assert [hold.outbox.get(UUID(id)) for id in done] == [None, None, None]
    assert [status(hold, id) for id in (gone, waiting)] == ["abandoned", "pending"]
    run("outbox", "prune", code=ExitCode.USAGE)


def test_verify_shows_what_was_denied_or_asked_in_vain(run: Run, answer: Answer, hold: Holdfast) -> None:
    assert run("outbox", "verify").stderr == "no success waits to be verified\n"
    now = datetime.now(UTC)
    entries = [
        make_entry(subject, at=now, status="succeeded", last_attempt_at=now, verification=word, verify_at=at)
        for subject, word, at in (
            ("a", "confirmed", None), ("b", "pending", now + timedelta(hours=5)), ("c", "pending", None),
            ("d", "failed", None), ("e", None, None),
        )
    ]  # fmt: skip
    enqueue(hold.outbox, *entries[:2], entries[4])
    assert [one["subject_id"] for one in answer("outbox", "verify")["items"]] == ["b"]
    enqueue(hold.outbox, *entries[2:4])
    said = lines(run("outbox", "verify", code=ExitCode.FAILED))
    assert [line.split()[1:] for line in said[1:]] == [
        ["erase", "crm", "0s", "failed"],
        ["erase", "crm", "0s", "pending", "4h"],
        ["erase", "crm", "0s", "pending", "never"],
    ]


@pytest.fixture
def unverified(hold: Holdfast) -> dict[str, str]:
    """Successes, by how far their verification is; their ids."""
    now = datetime.now(UTC)
    found = {
        word: make_entry(word, at=now, status="succeeded", last_attempt_at=now, verification=verification, verify_at=at)
        for word, verification, at in (
            ("confirmed", "confirmed", None), ("waiting", "pending", now + timedelta(hours=5)),
            ("given_up", "pending", None), ("failed", "failed", None), ("never", None, None),
        )
    }  # fmt: skip
    enqueue(hold.outbox, *found.values())
    return {word: str(entry.entry_id) for word, entry in found.items()}


def test_targets_are_asked_again_about_what_is_named(
    run: Run, answer: Answer, hold: Holdfast, unverified: dict[str, str]
) -> None:
    ids = [unverified["given_up"], unverified["failed"]]
    dry = run("outbox", "verify", *ids, "--dry-run")
    assert dry.stdout == "2 entries would be asked about\n"
    assert run("outbox", "verify", *ids).stdout == "asked about 2 entries\n"
    for id in ids:
        entry = hold.outbox.get(UUID(id))
        assert entry is not None
        assert entry.verification == "pending"
        assert entry.verify_at is not None
        assert answer("outbox", "show", id)["events"][0]["event_type"] == "verification_requested"
    run("outbox", "verify")  # nobody is needed any more


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("confirmed", "is confirmed already"),
        ("waiting", "is asked about already, at "),
        ("never", "is not to be verified: its operation does not ask, or its target cannot tell"),
    ],
)
def test_what_cannot_be_asked_about_is_said_and_then_nothing_is(
    run: Run, hold: Holdfast, unverified: dict[str, str], word: str, said: str
) -> None:
    error = run("outbox", "verify", unverified["failed"], unverified[word], code=ExitCode.FAILED).stderr
    assert error.startswith(f"holdfast: entry {unverified[word]} {said}")
    entry = hold.outbox.get(UUID(unverified["failed"]))
    assert entry is not None
    assert entry.verification == "failed"


def test_an_entry_that_has_not_succeeded_or_is_not_there_cannot_be_verified(run: Run, put: Put) -> None:
    id = put()
    error = run("outbox", "verify", id, code=ExitCode.FAILED).stderr
    assert error == f"holdfast: entry {id} is pending; only succeeded entries can be asked about\n"
    run("outbox", "verify", str(UUID(int=1)), code=ExitCode.NOT_FOUND)


def test_targets_are_asked_again_about_all_that_need_it_or_match_a_filter(
    run: Run, answer: Answer, hold: Holdfast, unverified: dict[str, str]
) -> None:
    asked = run("outbox", "verify", "--all")
    assert asked.stdout.startswith("2 entries would be asked about (")
    assert asked.stderr == "dry run: nothing was done; --yes does it\n"
    by_filter = answer("outbox", "verify", "--all", "--subject", "failed", "--yes")
    assert by_filter == {"matched": 1, "asked": 1, "refused": []}
    assert answer("outbox", "verify", "--all", "--yes")["asked"] == 1
    assert answer("outbox", "verify", "--all", "--yes")["matched"] == 0
    assert len(answer("outbox", "verify")["items"]) == 3
    assert [one["subject_id"] for one in answer("outbox", "verify", "--subject", "failed")["items"]] == ["failed"]


@pytest.mark.parametrize("args", [["--yes"], ["--dry-run"], [str(UUID(int=1)), "--target", "crm"]])
def test_what_to_verify_must_be_clear(run: Run, hold: Holdfast, args: list[str]) -> None:
    run("outbox", "verify", *args, code=ExitCode.USAGE)


@pytest.mark.parametrize("command", ["show", "requeue", "cancel", "verify"])
def test_what_is_no_id_is_said(run: Run, hold: Holdfast, command: str) -> None:
    error = run("outbox", command, "seven", code=ExitCode.USAGE).stderr
    assert "'seven' is no id of an entry; `holdfast outbox list` shows them" in error


def test_an_entry_that_is_not_there_is_code_3(run: Run, hold: Holdfast) -> None:
    error = run("outbox", "show", str(UUID(int=1)), code=ExitCode.NOT_FOUND).stderr
    assert error == f"holdfast: there is no entry {UUID(int=1)}\n"
    assert run("outbox", "list").stderr == "no entries match\n"


@pytest.mark.parametrize("command", ["outbox counts", "saga list", "audit verify"])
@pytest.mark.parametrize("url", ["memory://", "redis://127.0.0.1:1/0"])
def test_a_store_that_is_no_sql_database_says_so_in_one_line(run: Run, command: str, url: str) -> None:
    error = run(*command.split(), "--url", url, code=ExitCode.USAGE).stderr
    assert error.startswith(f"holdfast: {url} has no outbox, sagas or audit trail: they need a SQL database")
    assert error.count("\n") == 1


def test_a_database_that_loses_its_tables_says_how_to_get_them(run: Run, hold: Holdfast) -> None:
    with hold.works.engine.begin() as connection:
        connection.execute(sa.text("DROP TABLE holdfast_outbox"))
    error = run("outbox", "list", code=ExitCode.NO_STORE).stderr
    assert "no such table: holdfast_outbox" in error
    assert error.endswith("run: holdfast db upgrade\n")
    assert "SELECT" not in error
