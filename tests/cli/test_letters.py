"""Looking at letters."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast.app import Holdfast
from holdfast.cli.exits import ExitCode
from tests.cli import shop
from tests.cli.conftest import Run, lines

Answer = Callable[..., Any]
Filed = Callable[..., str]


def test_a_list_is_a_table_of_80_columns_with_the_newest_first(run: Run, filed: Filed) -> None:
    first = filed("notification", "MAX_RETRIES_SMTPERROR", error_message="451 mailbox busy")
    second = filed(error_message="ConnectionError: the payment provider at api.example.com refused the connection")
    assert lines(run("letters", "list")) == [
        "ID                        STATUS   DOMAIN        AGE  ERROR",
        f"{second}  pending  payments       0s  ConnectionError: the paym…",
        f"{first}  pending  notification   0s  451 mailbox busy",
    ]


def test_where_there_is_room_the_list_also_shows_the_tries(run: Run, filed: Filed) -> None:
    id = filed()
    assert lines(run("letters", "list", env={"COLUMNS": "100"})) == [
        "ID                        STATUS   DOMAIN    TRIES  AGE  ERROR",
        f"{id}  pending  payments    0/2   0s  ConnectionError: refused",
    ]


def test_a_list_of_long_words_still_fits(run: Run, filed: Filed, hold: Holdfast) -> None:
    id = filed("a_domain." + "x" * 50, "T" * 100, error_message="E" * 300)
    hold.letters.update_status(id, "permanently_failed")
    shown = lines(run("letters", "list"))
    assert max(map(len, shown)) <= 80
    assert shown[1].startswith(id)


def test_a_list_in_json_has_whole_letters_and_the_cursor_of_the_next_page(answer: Answer, filed: Filed) -> None:
    ids = [filed(error_message=str(at)) for at in range(5)]
    page = answer("letters", "list", "--limit", "2")
    seen = [letter["id"] for letter in page["items"]]
    while page["next"] is not None:
        page = answer("letters", "list", "--limit", "2", "--after", page["next"])
        seen += [letter["id"] for letter in page["items"]]
    assert seen == ids[::-1]


def test_the_keys_of_a_letter_in_json_are_these(answer: Answer, filed: Filed) -> None:
    id = filed()
    letter = answer("letters", "show", id)
    assert sorted(letter) == [
        "archived_at", "attempt_cap", "attempts", "created_at", "cursor", "dedup_key", "domain", "entity_id",
        "entity_refs", "entity_type", "error_code", "error_message", "expires_at", "failure_type", "heartbeat_at", "id",
        "last_retry_at", "max_retries", "metadata", "next_action_hint", "next_attempt_at", "occurrences",
        "recommended_action", "request_data", "resolution_note", "resolution_type", "resolved_at", "resolved_by_id",
        "response_data", "retry_count", "snapshot_data", "status", "updated_at", "user_id",
    ]  # fmt: skip
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", letter["created_at"])


def test_the_table_names_the_next_page_on_stderr(run: Run, filed: Filed) -> None:
    first, _ = filed(), filed()
    result = run("letters", "list", "--limit", "1")
    cursor = result.stderr.split()[-1]
    assert result.stderr == f"there are more: --after {cursor}\n"
    assert first in run("letters", "list", "--limit", "1", "--after", cursor).stdout


def test_a_cursor_that_is_none_is_told_in_one_line(run: Run, hold: Holdfast) -> None:
    assert "is no cursor" in run("letters", "list", "--after", "xyz", code=ExitCode.FAILED).stderr


@pytest.mark.parametrize(
    ("args", "found"),
    [
        (["--domain", "notification"], {"b"}),
        (["--failure-type", "F1"], {"a"}),
        (["--status", "resolved"], {"c"}),
        (["--status", "pending"], {"a", "b"}),
        (["--entity", "o-1"], {"a"}),
        (["--entity-type", "mail", "--entity", "o-1"], set()),
        (["--user", "7"], {"a"}),
        (["--user", '"7"'], {"b"}),
        (["--since", "1h"], {"a", "b", "c"}),
        (["--until", "1h"], set()),
        (["--since", "2020-01-01", "--until", "2099-01-01T00:00Z", "--domain", "payments"], {"a", "c"}),
    ],
)
def test_every_filter_narrows_the_list(
    answer: Answer, filed: Filed, hold: Holdfast, args: list[str], found: set[str]
) -> None:
    names = {
        filed("payments", "F1", entity_type="order", entity_id="o-1", user_id=7): "a",
        filed("notification", "F2", entity_type="mail", user_id="7"): "b",
        (resolved := filed("payments", "F3")): "c",
    }
    hold.letters.mark_as_resolved(resolved, "manual")
    assert {names[letter["id"]] for letter in answer("letters", "list", *args)["items"]} == found


def test_a_status_that_does_not_exist_is_wrong_usage(run: Run, hold: Holdfast) -> None:
    assert "'lost' is not one of" in run("letters", "list", "--status", "lost", code=ExitCode.USAGE).stderr


def test_nothing_found_is_no_error(run: Run, hold: Holdfast) -> None:
    result = run("letters", "list")
    assert (result.stdout, result.stderr) == ("", "no letters match\n")


def test_a_letter_is_shown_with_its_payload_its_attempts_and_its_secrets_masked(
    run: Run, filed: Filed, hold: Holdfast
) -> None:
    request = {"function": "charge", "args": {"order_id": "o-1", "password": "hunter2"}}
    id = filed(entity_type="order", entity_id="o-1", user_id=7, request_data=request, metadata={"api_key": "k-123"})
    token = hold.letters.try_acquire_for_replay(id, 2, trigger="manual_replay").attempt_token  # type: ignore[union-attr]
    hold.letters.complete_replay(id, False, note="still refused", attempt_token=token)
    shown = run("letters", "show", id).stdout
    times = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC")
    assert times.sub("TIME", shown).replace("(0s ago)", "(AGO)").replace("(1s ago)", "(AGO)") == (
        f"id            {id}\n"
        "status        pending\n"
        "domain        payments\n"
        "failure type  MAX_RETRIES_CONNECTIONERROR\n"
        "error         ConnectionError: refused\n"
        "entity        order o-1\n"
        "user          7\n"
        "tries         1 of 2\n"
        "created       TIME (AGO)\n"
        "last try      TIME\n"
        "note          still refused\n"
        "\n"
        "request data\n"
        "function  charge\n"
        "args      {\n"
        '            "order_id": "o-1",\n'
        '            "password": "***"\n'
        "          }\n"
        "\n"
        "metadata\n"
        "api_key  ***\n"
        "\n"
        "attempts\n"
        "#  STARTED                  TOOK  OUTCOME  TRIGGER        NOTE\n"
        "1  TIME    0s  failed   manual_replay  still refused\n"
    )


def test_secrets_are_masked_in_json_as_well(run: Run, filed: Filed) -> None:
    id = filed(request_data={"password": "hunter2"}, response_data={"set-cookie": "sid=1"}, metadata={"token": "t-9"})
    for command in (["letters", "show", id], ["letters", "list"]):
        text = run(*command, "--json").stdout
        assert "hunter2" not in text
        assert "sid=1" not in text
        assert "t-9" not in text


def test_attempts_are_listed_oldest_first(answer: Answer, run: Run, failed: Callable[[int], list[str]]) -> None:
    [id] = failed(1)
    assert run("letters", "attempts", id).stderr == "nobody has tried to replay it\n"
    down: dict[str, str | None] = {shop.DOWN: "1", "HOLDFAST_URL": None, "HOLDFAST_APP": shop.APP}
    run("letters", "retry", id, env=down, code=ExitCode.FAILED)
    made = answer("letters", "attempts", id)
    assert made["id"] == id
    assert [(one["number"], one["outcome"], one["trigger"]) for one in made["attempts"]] == [
        (1, "failed", "manual_replay")
    ]


def test_a_next_try_is_shown_only_where_somebody_makes_it(run: Run, filed: Filed, monkeypatch: Any) -> None:
    program: dict[str, str | None] = {"HOLDFAST_URL": None, "HOLDFAST_APP": shop.APP}
    request = {"function": "charge", "args": {"order_id": "o-1", "amount": 1}}
    retried = filed(request_data=request)
    permanent = filed(failure_type="MAX_RETRIES_TYPEERROR", request_data=request)
    monkeypatch.setenv(shop.DOWN, "1")
    for id in (retried, permanent):
        run("letters", "retry", id, env=program, code=ExitCode.FAILED)

    def told(id: str, env: dict[str, str | None] | None = None) -> list[str]:
        shown = run("letters", "show", id, env=env).stdout.splitlines()
        return [line[:10] for line in shown if line.startswith(("next try ", "not before "))]

    assert told(retried, program) == ["next try  "]
    assert told(permanent, program) == ["not before"]
    assert told(retried) == told(permanent) == ["not before"]  # whether somebody does is the program's to say


def test_a_time_before_which_nobody_tries_is_not_shown_once_it_is_over(run: Run, filed: Filed) -> None:
    id = filed(next_attempt_at=datetime.now(UTC) - timedelta(seconds=5))
    shown = run("letters", "show", id).stdout
    assert "not before" not in shown
    assert "next try" not in shown


@pytest.mark.parametrize("command", ["show", "attempts"])
def test_an_unknown_letter_is_code_3(run: Run, hold: Holdfast, command: str) -> None:
    assert run("letters", command, "nope", code=ExitCode.NOT_FOUND).stderr == "holdfast: there is no letter nope\n"


def test_facets_count_each_side_within_the_choice_of_the_other(answer: Answer, run: Run, filed: Filed) -> None:
    filed(), filed(), filed("notification")
    assert answer("letters", "facets") == {
        "by_status": {"pending": 3},
        "by_domain": {"payments": 2, "notification": 1},
    }
    assert answer("letters", "facets", "--domain", "payments")["by_status"] == {"pending": 2}
    assert lines(run("letters", "facets")) == [
        "STATUS   LETTERS",
        "pending        3",
        "",
        "DOMAIN        LETTERS",
        "payments            2",
        "notification        1",
    ]


def test_stats_show_what_waits_and_what_is_old(answer: Answer, run: Run, filed: Filed, hold: Holdfast) -> None:
    filed()
    hold.letters.mark_as_resolved(filed("notification", "F"), "manual")
    assert answer("letters", "stats") == {
        "total": 2,
        "by_status": {"pending": 1, "resolved": 1},
        "by_domain": {"payments": 1, "notification": 1},
        "pending_by_domain": {"payments": 1},
        "pending_by_domain_and_failure_type": {"payments": {"MAX_RETRIES_CONNECTIONERROR": 1}},
        "resolved_older_than_30_days": 0,
        "archived_older_than_90_days": 0,
    }
    assert lines(run("letters", "stats")) == [
        "total                        2",
        "resolved older than 30 days  0",
        "archived older than 90 days  0",
        "",
        "by status",
        "STATUS    LETTERS",
        "pending         1",
        "resolved        1",
        "",
        "pending",
        "DOMAIN    FAILURE TYPE                 LETTERS",
        "payments  MAX_RETRIES_CONNECTIONERROR        1",
    ]
