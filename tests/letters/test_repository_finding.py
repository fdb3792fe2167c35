"""Reading letters: filters, orders, pages, windows of time."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from holdfast.letters.data import FailedOperationData
from holdfast.letters.repository import FailedOperationRepository
from holdfast.testing.clock import ManualClock

Letters = FailedOperationRepository


def fill(letters: Letters, clock: ManualClock, number: int = 30) -> list[FailedOperationData]:
    """Letters of three domains, two types and three entities, of which every fifth is resolved; two share each time."""
    made = []
    for n in range(number):
        letter = letters.create(
            "abc"[n % 3], "FG"[n % 2], entity_type="order", entity_id=f"o{n % 3}", user_id=[7, "7"][n % 2],
            metadata={"source": "xyz"[n % 3]},
        )  # fmt: skip
        made.append(letter)
        if n % 5 == 0:
            letters.update_status(letter.id, "resolved")
        clock.advance(n % 2)
    return made


def ids(found: list[FailedOperationData]) -> list[str]:
    return [letter.id for letter in found]


def test_find_gives_every_status_newest_first(letters: Letters, clock: ManualClock) -> None:
    made = fill(letters, clock)
    assert ids(letters.find()) == ids(made)[::-1]
    assert letters.count() == 30


def test_filters_are_exact_and_applied_before_the_limit(letters: Letters, clock: ManualClock) -> None:
    made = fill(letters, clock)
    resolved = [letter for n, letter in enumerate(made) if n % 5 == 0]
    for status, of_status in (("resolved", resolved), ("pending", [x for x in made if x not in resolved])):
        for domain in ("a", "b", "c", "A", "", "a ", "%"):
            for kind in (None, "F", "f", ""):
                want = [x.id for x in of_status if x.domain == domain and kind in (None, x.failure_type)]
                assert ids(letters.find(status=status, domain=domain, failure_type=kind, limit=4)) == want[::-1][:4]
                assert ids(letters.find_by_status(status, domain, kind, 4)) == want[:4]
                assert letters.count(status=status, domain=domain, failure_type=kind) == len(want)


def pages(letters: Letters, **wanted: Any) -> list[list[str]]:
    """Every page of a search."""
    found, after = [], None
    while True:
        page = letters.search(**wanted, after=after)
        found.append(ids([*page.letters]))
        after = page.after
        if after is None:
            return found


@pytest.mark.parametrize(
    "wanted",
    [
        {}, {"status": "resolved"}, {"domain": "a"}, {"failure_type": "F"}, {"entity_type": "order"},
        {"entity_id": "o1", "status": "pending"}, {"user_id": 7, "domain": "b"}, {"user_id": "7", "failure_type": "G"},
        {"status": "pending", "domain": "c", "failure_type": "F", "entity_type": "order"}, {"entity_type": "refund"},
        {"failure_type": "none"}, {"user_id": "nobody", "status": "pending"},
    ],
)  # fmt: skip
def test_a_search_finds_what_find_does_whatever_it_looks_at_for_a_page(
    letters: Letters, clock: ManualClock, wanted: dict[str, Any]
) -> None:
    fill(letters, clock)
    found = pages(letters, **wanted, limit=4, window=3)
    assert [id for page in found for id in page] == ids(letters.find(**wanted, limit=100))
    assert all(len(page) <= 4 for page in found)


def test_a_search_for_what_no_index_finds_looks_at_a_part_of_the_letters(letters: Letters, clock: ManualClock) -> None:
    rare = letters.create("many", "F", entity_type="rare").id
    for _ in range(6):
        clock.advance(1)
        letters.create_many([{"domain": "many", "failure_type": "F"}] * 5)
    first = letters.search(entity_type="rare", window=10)
    assert (first.letters, first.after is None) == ([], False)
    assert [page for page in pages(letters, entity_type="rare", window=10) if page] == [[rare]]


def test_a_search_finds_a_user_at_once_however_old_the_letter_is(letters: Letters) -> None:
    rare = letters.create("many", "F", user_id="u").id
    letters.create_many([{"domain": "many", "failure_type": "F"}] * 30)
    assert pages(letters, user_id="u", window=2) == [[rare]]
    assert pages(letters, user_id="u", status="pending", domain="many", window=2) == [[rare]]


def test_a_search_is_narrowed_to_the_only_domain_that_has_such_failures(letters: Letters) -> None:
    rare = letters.create("few", "RARE").id
    letters.create_many([{"domain": "many", "failure_type": "F"}] * 30)
    assert pages(letters, failure_type="RARE", window=2) == [[rare]]


def test_a_user_id_that_is_too_long_to_be_found_by_is_refused(letters: Letters) -> None:
    with pytest.raises(ValueError, match="user_id has 192 characters; a searched text has at most 191"):
        letters.create("d", "F", user_id="u" * 190)


def test_a_filter_that_matches_rarely_is_not_limited_to_a_window(letters: Letters) -> None:
    rare = letters.create("rare", "RARE", user_id="u").id
    letters.create_many([{"domain": "many", "failure_type": "F"}] * 1500)
    assert ids(letters.find(domain="rare", limit=1)) == [rare]
    assert ids(letters.find(failure_type="RARE", limit=1)) == [rare]
    assert ids(letters.find(user_id="u", limit=1)) == [rare]
    assert ids(letters.find_replayable(2, failure_type="RARE", limit=1)) == [rare]


def test_entity_and_user_are_filters_too(letters: Letters, clock: ManualClock) -> None:
    made = fill(letters, clock)
    assert ids(letters.find(entity_id="o1")) == [x.id for x in made if x.entity_id == "o1"][::-1]
    assert (
        ids(letters.find(entity_type="order", entity_id="o1", domain="b", status="resolved"))
        == [x.id for n, x in enumerate(made) if x.entity_id == "o1" and n % 5 == 0][::-1]
    )
    assert letters.find(entity_type="Order") == letters.find(entity_id="") == []
    assert ids(letters.find(user_id=7)) == [x.id for x in made if x.user_id == 7][::-1]
    assert ids(letters.find(user_id="7")) == [x.id for x in made if x.user_id == "7"][::-1]
    assert letters.count(user_id=7) == letters.count(user_id="7") == 15
    assert letters.count(entity_id="o2", user_id=7) == 5


def test_both_ends_of_a_time_are_included(letters: Letters, clock: ManualClock) -> None:
    first = letters.create("d", "f")
    clock.advance(10)
    second = letters.create("d", "f")
    clock.advance(10)
    third = letters.create("d", "f")
    letters.update_status(second.id, "archived")
    tick = timedelta(microseconds=1)
    window = letters.count_created_in_window
    assert window(first.created_at, third.created_at) == 3
    assert window(second.created_at, second.created_at) == 1
    assert window(first.created_at + tick, third.created_at - tick) == 1
    assert window(third.created_at + tick, first.created_at) == 0
    assert window(third.created_at, first.created_at) == 0
    assert window(second.created_at.replace(tzinfo=None), second.created_at.replace(tzinfo=None)) == 1
    assert ids(letters.find(created_from=second.created_at)) == [third.id, second.id]
    assert ids(letters.find(created_to=second.created_at)) == [second.id, first.id]
    assert letters.count(created_from=second.created_at, created_to=second.created_at) == 1


@pytest.mark.parametrize("number", [0, -1, -(2**70)])
def test_a_limit_of_nothing_gives_nothing(letters: Letters, clock: ManualClock, number: int) -> None:
    letters.create("d", "f", expires_at=clock.wall())
    clock.advance(1)
    assert letters.find(limit=number) == []
    assert letters.find_by_status("pending", limit=number) == []
    assert letters.get_pending_by_domain("d", number) == []
    assert letters.find_replayable(2, limit=number) == []
    assert letters.get_expired_operations(clock.wall(), number) == []
    assert letters.acquire_many(domain="d", limit=number, max_retries=2) == []
    assert letters.get_oldest_ids(number) == []
    assert letters.evict_oldest(number) == letters.compress_and_evict_oldest(number) == 0
    assert letters.get_compressed_entries(limit=number) == []
    assert len(letters.find(offset=number)) == 1


def test_a_limit_may_be_larger_than_any_number_of_rows(letters: Letters) -> None:
    id = letters.create("d", "f").id
    assert ids(letters.find(limit=2**70)) == ids(letters.find_by_status("pending", limit=2**70)) == [id]
    assert letters.find(offset=2**70) == []
    assert letters.get_oldest_ids(2**70) == [id]


def test_pages_by_offset_and_by_cursor_cover_everything_once(letters: Letters, clock: ManualClock) -> None:
    made = ids(fill(letters, clock))[::-1]
    by_offset = [id for at in range(0, 35, 7) for id in ids(letters.find(offset=at, limit=7))]
    assert by_offset == made
    by_cursor: list[str] = []
    cursor: str | None = None
    while page := letters.find(after=cursor, limit=7):
        by_cursor += ids(page)
        cursor = page[-1].cursor
    assert by_cursor == made


def test_a_cursor_is_not_moved_by_new_letters_or_by_the_end_of_its_own(letters: Letters, clock: ManualClock) -> None:
    made = ids(fill(letters, clock))[::-1]
    page = letters.find(limit=10)
    letters.create("new", "f")
    letters.delete(page[-1].id)
    assert ids(letters.find(after=page[-1].cursor, limit=100)) == made[10:]


@pytest.mark.parametrize("cursor", ["", "nonsense", "zz.id", "12", "12.", ".id", f"{2**70:x}.id", "12.a\0", "12.é"])
def test_a_text_that_is_no_cursor_is_refused(letters: Letters, cursor: str) -> None:
    with pytest.raises(ValueError, match="no cursor"):
        letters.find(after=cursor)
    with pytest.raises(ValueError, match="no cursor"):
        letters.find_replayable(2, after=cursor)


def test_pending_letters_of_a_domain_come_oldest_first(letters: Letters, clock: ManualClock) -> None:
    made = fill(letters, clock)
    want = [x.id for n, x in enumerate(made) if x.domain == "b" and n % 5]
    assert ids(letters.get_pending_by_domain("b")) == want
    assert ids(letters.get_pending_by_domain("b", limit=3)) == want[:3]
    assert letters.get_pending_count_by_domain("b") == len(want)
    assert letters.get_pending_count_by_domain("nobody") == 0


def test_replayable_is_pending_below_the_cap_and_not_waiting(letters: Letters, clock: ManualClock) -> None:
    now = clock.wall()
    free = letters.create("d", "f")
    tried = letters.create("d", "f", retry_count=1, max_retries=9)
    letters.create("d", "f", retry_count=2, max_retries=9)
    due = letters.create("d", "f", next_attempt_at=now)
    waiting = letters.create("d", "f", next_attempt_at=now + timedelta(seconds=5))
    letters.update_status(letters.create("d", "f").id, "reviewing")
    assert ids(letters.find_replayable(2)) == [free.id, tried.id, due.id]
    assert ids(letters.find_replayable(1)) == [free.id, due.id]
    assert letters.find_replayable(0) == letters.find_replayable(-5) == []
    clock.advance(4.999999)
    assert waiting.id not in ids(letters.find_replayable(2))
    clock.advance(0.000001)
    assert ids(letters.find_replayable(2)) == [free.id, tried.id, due.id, waiting.id]
    assert ids(letters.find_replayable(2, limit=2)) == [free.id, tried.id]
    assert len(letters.find_replayable(10**30)) == 5


def test_replayable_letters_are_paged_and_filtered_by_source(letters: Letters, clock: ManualClock) -> None:
    made = fill(letters, clock)
    want = [x.id for n, x in enumerate(made) if x.metadata["source"] == "y" and n % 5]
    got: list[str] = []
    cursor: str | None = None
    while page := letters.find_replayable(2, "b", source="y", limit=3, after=cursor):
        got += ids(page)
        cursor = page[-1].cursor
        letters.try_acquire_for_replay(page[0].id, 2)  # the page's own letters may go away meanwhile
    assert got == want
    assert letters.find_replayable(2, "a", source="y") == letters.find_replayable(2, source="") == []


def test_a_source_that_is_no_text_matches_no_filter(letters: Letters) -> None:
    letters.create("d", "f", metadata={"source": 7})
    assert letters.find_replayable(2, source="7") == []
    assert len(letters.find_replayable(2)) == 1


def test_the_sla_takes_the_domains_threshold_else_the_default_else_a_day(letters: Letters, clock: ManualClock) -> None:
    slow = letters.create("slow", "f")
    quick = letters.create("quick", "f")
    other = letters.create("other", "f")
    done = letters.create("quick", "f")
    letters.mark_as_resolved(done.id, "manual")
    quick_limit = {"quick": timedelta(seconds=10)}
    clock.advance(10)
    assert letters.find_sla_breached(clock.wall(), quick_limit) == []
    clock.advance(0.000001)
    assert ids(letters.find_sla_breached(clock.wall(), quick_limit)) == [quick.id]
    defaults = {"default": timedelta(seconds=5), "slow": timedelta(days=9)}
    assert ids(letters.find_sla_breached(clock.wall(), defaults)) == [quick.id, other.id]
    assert letters.find_sla_breached(clock.wall(), {}) == []
    clock.advance(86_400)
    assert ids(letters.find_sla_breached(clock.wall(), {})) == [slow.id, quick.id, other.id]
    everything = {"slow": timedelta(0), "quick": timedelta(0), "nobody": timedelta(0)}
    assert ids(letters.find_sla_breached(clock.wall(), everything)) == [slow.id, quick.id, other.id]
    assert letters.find_sla_breached(clock.wall(), {"default": timedelta.max}) == []
    assert len(letters.find_sla_breached(clock.wall(), {"default": timedelta.min})) == 3


def test_a_domain_called_default_is_an_ordinary_domain(letters: Letters, clock: ManualClock) -> None:
    letter = letters.create("default", "f")
    clock.advance(2)
    assert ids(letters.find_sla_breached(clock.wall(), {"default": timedelta(seconds=1)})) == [letter.id]


def test_the_sla_sees_every_row(letters: Letters, clock: ManualClock) -> None:
    made = letters.create_many({"domain": "ab"[n % 2], "failure_type": "f"} for n in range(2500))
    clock.advance(10)
    breached = letters.find_sla_breached(clock.wall(), {"a": timedelta(seconds=1), "default": timedelta(seconds=2)})
    assert ids(breached) == ids(made)


def test_expired_is_strictly_before_and_of_every_status(letters: Letters, clock: ManualClock) -> None:
    now = clock.wall()
    late = letters.create("d", "f", expires_at=now + timedelta(seconds=2))
    early = letters.create("d", "f", expires_at=now + timedelta(seconds=1))
    twin = letters.create("d", "f", expires_at=now + timedelta(seconds=1))
    letters.create("d", "f")
    letters.update_status(early.id, "archived")
    at = now + timedelta(seconds=2)
    assert ids(letters.find_expired(at)) == [early.id, twin.id]
    assert ids(letters.find_expired(at + timedelta(microseconds=1))) == [early.id, twin.id, late.id]
    assert letters.find_expired(now + timedelta(seconds=1)) == []
    assert ids(letters.get_expired_operations(at, limit=1)) == [early.id]
    assert ids(letters.get_expired_operations(at.replace(tzinfo=None))) == [early.id, twin.id]


def test_expired_letters_have_no_row_cap(letters: Letters, clock: ManualClock) -> None:
    letters.create_many([{"domain": "d", "failure_type": "f", "expires_at": clock.wall()}] * 1200)
    clock.advance(1)
    assert len(letters.find_expired(clock.wall())) == 1200
    assert len(letters.get_expired_operations(clock.wall())) == 100


def test_counts_of_active_letters(letters: Letters) -> None:
    statuses = ["pending", "replaying", "reviewing", "replayed", "requires_review"]
    statuses += ["resolved", "rejected", "archived", "expired", "permanently_failed"]
    for status in statuses:
        letters.update_status(letters.create("d", "f").id, status)
    letters.create("e", "f")
    assert letters.count_all() == 8
    assert (letters.count_by_domain("d"), letters.count_by_domain("e"), letters.count_by_domain("x")) == (7, 1, 0)
    assert letters.count() == 11


def test_statistics_have_the_documented_shape(letters: Letters) -> None:
    assert letters.get_statistics() == {
        "total": 0, "by_status": {}, "by_domain": {}, "pending_by_domain": {}, "pending_by_domain_and_failure_type": {},
    }  # fmt: skip
    letters.create("a", "F")
    letters.create("a", "F")
    letters.create("a", "G")
    letters.mark_as_resolved(letters.create("b", "F").id, "manual")
    assert letters.get_statistics() == {
        "total": 4,
        "by_status": {"pending": 3, "resolved": 1},
        "by_domain": {"a": 3, "b": 1},
        "pending_by_domain": {"a": 3},
        "pending_by_domain_and_failure_type": {"a": {"F": 2, "G": 1}},
    }


def test_a_facet_is_scoped_by_the_other_ones_choice(letters: Letters) -> None:
    letters.create("a", "f")
    letters.create("b", "f")
    letters.mark_as_resolved(letters.create("b", "f").id, "manual")
    facets: Any = letters.get_facet_counts
    assert facets() == {"by_status": {"pending": 2, "resolved": 1}, "by_domain": {"a": 1, "b": 2}}
    assert facets(domain="a") == {"by_status": {"pending": 1}, "by_domain": {"a": 1, "b": 2}}
    assert facets(status="resolved") == {"by_status": {"pending": 2, "resolved": 1}, "by_domain": {"b": 1}}
    assert facets(status="resolved", domain="a") == {"by_status": {"pending": 1}, "by_domain": {"b": 1}}
    assert facets(status="", domain="") == {"by_status": {}, "by_domain": {}}


def test_the_inflow_counts_what_came_whatever_became_of_it(letters: Letters, clock: ManualClock) -> None:
    letters.create("a", "f")
    clock.advance(3600)
    hour = clock.wall()
    letters.create("a", "f")
    letters.create("b", "f")
    letters.evict_oldest(3)
    assert letters.count() == 0
    assert (letters.inflow(), letters.inflow("a"), letters.inflow("b"), letters.inflow("c")) == (3, 2, 1, 0)
    assert (letters.inflow("a", hour), letters.inflow(since=hour), letters.inflow(until=hour)) == (1, 2, 3)
    assert letters.inflow("a", until=hour - timedelta(hours=1)) == 1
    assert letters.inflow(since=hour + timedelta(hours=1)) == 0
