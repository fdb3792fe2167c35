"""Archive, purge, and the summaries of compressed letters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from holdfast.app import Holdfast
from holdfast.cli.exits import ExitCode
from tests.cli.conftest import Run, lines

Answer = Callable[..., Any]
Filed = Callable[..., str]


@pytest.fixture
def archived(filed: Filed, hold: Holdfast) -> Callable[[], str]:
    """Files a letter and archives it; its id."""

    def archived() -> str:
        id = filed()
        hold.letters.update_status(id, "archived")
        return id

    return archived


def test_archiving_takes_what_was_resolved_long_ago(run: Run, answer: Answer, filed: Filed, hold: Holdfast) -> None:
    id = filed()
    hold.letters.mark_as_resolved(id, "manual")
    assert answer("letters", "archive") == {"archived": 0}
    assert answer("letters", "archive", "--dry-run") == {"matched": 0, "archived": 0}
    assert run("letters", "archive", "--older-than", "0", "--dry-run").stdout == "1 letter would be archived\n"
    assert hold.letters.get_by_id(id).status == "resolved"  # type: ignore[union-attr]
    assert run("letters", "archive", "--older-than", "0").stdout == "archived 1 letter\n"
    assert hold.letters.get_by_id(id).status == "archived"  # type: ignore[union-attr]


def test_a_purge_is_a_dry_run_unless_told_otherwise(run: Run, hold: Holdfast, archived: Callable[[], str]) -> None:
    archived(), archived()
    result = run("letters", "purge", "--older-than", "0")
    assert result.stdout == "2 archived letters would be deleted\n"
    assert result.stderr == "dry run: nothing was done; --yes does it\n"
    assert hold.letters.count() == 2
    assert "deleted 2 letters" in run("letters", "purge", "--older-than", "0", "--yes").stdout
    assert hold.letters.count() == 0


def test_a_purge_in_json_tells_what_matched_and_what_went(answer: Answer, archived: Callable[[], str]) -> None:
    id = archived()
    assert answer("letters", "purge", id) == {"matched": 1, "purged": 0}
    assert answer("letters", "purge", id, "--yes", "--dry-run") == {"matched": 1, "purged": 0}
    assert answer("letters", "purge", id, "--yes") == {"matched": 1, "purged": 1}


def test_a_letter_that_is_not_archived_is_not_purged(
    run: Run, hold: Holdfast, filed: Filed, archived: Callable[[], str]
) -> None:
    ids = [archived(), filed()]
    error = run("letters", "purge", *ids, "--yes", code=ExitCode.FAILED).stderr
    assert error == f"holdfast: letter {ids[1]} is pending; only archived letters can be purged\n"
    assert hold.letters.count() == 2


@pytest.mark.parametrize("args", [[], ["x", "--older-than", "3"]])
def test_a_purge_must_say_what(run: Run, hold: Holdfast, args: list[str]) -> None:
    assert "say what to purge" in run("letters", "purge", *args, code=ExitCode.USAGE).stderr


def test_a_purge_of_unknown_letters_is_code_3(run: Run, hold: Holdfast) -> None:
    run("letters", "purge", "nope", "--yes", code=ExitCode.NOT_FOUND)


def test_summaries_of_compressed_letters_can_be_seen_and_marked(
    run: Run, answer: Answer, filed: Filed, hold: Holdfast
) -> None:
    assert run("letters", "compressed", "list").stderr == "no summaries match\n"
    filed(error_code="503"), filed(error_code="503")
    hold.letters.compress_and_evict_oldest(2)
    assert lines(run("letters", "compressed", "list")) == [
        "DOMAIN    FAILURE TYPE       CODE  LETTERS  STATUS  LAST SEEN  SAMPLE",
        "payments  MAX_RETRIES_CONN…  503         2  active         0s  ConnectionError:…",
    ]
    [entry] = answer("letters", "compressed", "list", "--domain", "payments")["items"]
    assert entry["count"] == 2
    assert answer("letters", "compressed", "summary") == {
        "total_summaries": 1,
        "total_compressed_items": 2,
        "by_status": {"active": 1, "stale": 0, "archived": 0},
    }
    run("letters", "compressed", "mark", entry["id"], "archived")
    assert answer("letters", "compressed", "list", "--status", "active") == {"items": []}
    run("letters", "compressed", "mark", "nope", "archived", code=ExitCode.NOT_FOUND)
