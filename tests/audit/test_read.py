"""Reading: oldest first, by subject, entry and time, whole or in pages."""

from __future__ import annotations

from datetime import timedelta, timezone
from uuid import UUID, uuid4

import pytest
import sqlalchemy as sa

from holdfast.errors import AuditIntegrityError, ConfigurationError
from holdfast.outbox.subject import CompositeSubjectId
from tests.audit.trail import NAIVE, NOON, event, execute, fill, sink_on


def test_unchained_events_are_read_by_time_and_then_by_id(database):
    sink = sink_on(database, chained=False)
    same = [event(n, event_id=uuid4(), occurred_at=NOON) for n in range(9)]
    events = [event(30), *same, event(20), event(21, "bob")]
    for one in events:
        sink.append(one)
    mine = [one for one in events if one.subject_ref == "ann"]
    assert list(sink.read("ann")) == sorted(mine, key=lambda one: (one.occurred_at, one.event_id))
    assert sink.read("nobody") == ()


def test_chained_events_are_read_in_the_order_of_their_chain(database):
    """The clock of one host is behind that of another; the chain knows better."""
    sink = sink_on(database)
    for number in (5, 3, 4):
        sink.append(event(number))
    assert [one.payload["refs"] for one in sink.read("ann")] == [5, 3, 4]


def test_what_was_written_before_the_chain_is_read_before_it(database):
    fill(sink_on(database, chained=False), 3)
    sink = sink_on(database)
    for number in (9, 8):
        sink.append(event(number))
    assert [one.payload["refs"] for one in sink.read("ann")] == [0, 1, 2, 9, 8]


def test_events_are_found_by_the_outbox_entry_that_they_are_about(database):
    sink = sink_on(database)
    entry_id = uuid4()
    sink.append(event(1, entry_id=entry_id))
    sink.append(event(2))
    sink.append(event(3, entry_id=entry_id))
    assert [one.payload["refs"] for one in sink.read_entry(entry_id)] == [1, 3]
    assert {one.entry_id for one in sink.read("ann")} == {entry_id, None}


def test_read_since_includes_the_moment_itself(database):
    sink = sink_on(database, streams="subject")
    events = fill(sink, 10, subjects=3)
    since = events[4].occurred_at
    assert list(sink.read_since(since)) == events[4:]
    assert list(sink.read_since(since.astimezone(timezone(timedelta(hours=-8))))) == events[4:]
    assert list(sink.read_since(since + timedelta(microseconds=1))) == events[5:]
    with pytest.raises(ConfigurationError, match="time zone"):
        sink.read_since(NAIVE)


def test_an_unregistered_type_spoils_the_whole_read_and_no_other(database):
    sink = sink_on(database)
    sink.append(event(1))
    sink.append(event(2, event_type="card_charged"))
    sink.append(event(3, "bob"))
    for read in (lambda: sink.read("ann"), lambda: sink.read_since(NOON)):
        with pytest.raises(AuditIntegrityError, match=r"card_charged.*event_types"):
            read()
    assert len(sink.read("bob")) == 1
    for known in ({"card_charged"}, lambda: {"card_charged"}):
        assert [str(one.event_type) for one in sink_on(database, event_types=known).read("ann")] == [
            "erasure_requested",
            "card_charged",
        ]


def test_pages_follow_each_other_without_a_gap_or_a_repetition(database):
    sink = sink_on(database)
    same = [event(100 + n, event_id=uuid4(), occurred_at=NOON + timedelta(seconds=3)) for n in range(15)]
    fill(sink, 20)
    sink.run(lambda session: sink.append_in(session, same))
    sink.append(event(60, "bob", event_type="unregistered"))
    seen, after = [], None
    while page := sink.page(subject_ref="ann", after=after, limit=4):
        seen += page
        after = page[-1].cursor
    assert len(seen) == 35
    assert {one.event.event_id for one in seen} == {one.event_id for one in sink.read("ann")}
    assert [one.event.occurred_at for one in seen] == sorted(one.event.occurred_at for one in seen)
    assert all(one.stream and one.event_hash for one in seen)
    assert len(sink.page()) == 36
    assert len(sink.page(since=NOON + timedelta(seconds=50))) == 1


def test_a_row_that_is_no_event_is_not_given_out(database):
    sink = sink_on(database)
    fill(sink, 2)
    events = database.tables.audit_events
    execute(database, events.update().where(events.c.seq == 2).values(payload={"a": [1, 2]}))
    with pytest.raises(AuditIntegrityError, match="cannot be read"):
        sink.read("ann")


def test_a_broken_text_in_sqlite_is_not_given_out(tmp_path):
    from tests.databases import fresh_database

    with fresh_database("sqlite", tmp_path) as database:
        sink = sink_on(database)
        fill(sink, 2)
        execute(database, sa.text(f"UPDATE {database.tables.audit_events.name} SET payload = '{{'"))
        with pytest.raises(AuditIntegrityError, match="cannot be read"):
            sink.read("ann")


def test_an_event_equals_its_copy_and_can_be_kept_in_a_set():
    one = event(1)
    assert {one, event(1)} == {one}
    assert one.model_copy(update={"event_id": UUID(int=1)}) != one


def test_nobody_is_not_everybody(database):
    sink = sink_on(database)
    fill(sink, 3)
    for wrong in (None, 7, CompositeSubjectId(values=("shop", "ann"))):
        with pytest.raises(ValueError, match=r"subject_ref must be a text, got .*canonical"):
            sink.read(wrong)
    with pytest.raises(ValueError, match="entry_id must be a UUID, got None"):
        sink.read_entry(None)
