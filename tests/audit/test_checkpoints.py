"""Checkpoints: taken, carried elsewhere, and held against the chain."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast.audit.checkpoints import Checkpoint, export_checkpoints, import_checkpoints
from holdfast.audit.verify import Break, ChainVerification
from holdfast.errors import AuditIntegrityError, ConfigurationError
from tests.audit.trail import NAIVE, NOON, event, execute, fill, rows_of, sink_on
from tests.databases import TABLES

EVENTS, HEADS, CHECKPOINTS = TABLES.audit_events, TABLES.chain_heads, TABLES.checkpoints


def cut_off(database, stream, behind):
    """Remove the end of a stream, and set its head to match."""
    rows = [row for row in rows_of(database) if row.stream == stream and row.seq <= behind]
    execute(database, EVENTS.delete().where(EVENTS.c.stream == stream, EVENTS.c.seq > behind))
    mine = HEADS.c.stream == stream
    if rows:
        execute(database, HEADS.update().where(mine).values(seq=behind, last_hash=rows[-1].event_hash))
    else:
        execute(database, HEADS.delete().where(mine))


def test_a_checkpoint_has_the_end_of_every_stream(database):
    sink = sink_on(database)
    fill(sink, 40, subjects=10)
    taken = sink.checkpoint(NOON)
    ends = {row.stream: row for row in rows_of(database)}
    assert taken == [Checkpoint(row.stream, row.seq, row.event_hash, NOON) for row in ends.values()]
    assert all(sink.verify_all(checkpoints=taken))


def test_taken_twice_it_is_kept_once(database):
    sink = sink_on(database, streams=1)
    fill(sink, 3)
    assert sink.checkpoint(NOON)[0].seq == sink.checkpoint(NOON + timedelta(1))[0].seq == 3
    sink.append(event(9))
    sink.checkpoint(NOON + timedelta(2))
    with database.engine.connect() as connection:
        assert [(row.seq, row.stream) for row in connection.execute(CHECKPOINTS.select())] == [(3, "all"), (4, "all")]
    with pytest.raises(ConfigurationError, match="time zone"):
        sink.checkpoint(NAIVE)


@pytest.mark.parametrize("behind", [0, 2])
def test_removal_of_head_and_end_together_shows(database, behind):
    sink = sink_on(database, streams=1)
    fill(sink, 4)
    taken = sink.checkpoint()
    cut_off(database, "all", behind)
    last = event(behind - 1).event_id if behind else None
    broken = ChainVerification(False, last, "all", behind, Break.CHECKPOINT)
    assert sink.verify("all") == broken
    assert sink.verify_all() == [broken]
    with pytest.raises(AuditIntegrityError, match="does not reach"):
        sink.checkpoint()
    execute(database, CHECKPOINTS.delete())
    assert sink.verify("all").verified  # only what was carried elsewhere knows
    assert sink.verify("all", checkpoints=taken) == broken
    assert sink.verify_all(checkpoints=taken) == [broken]


def test_another_end_of_the_same_length_shows(database):
    sink = sink_on(database, streams=1)
    fill(sink, 4)
    sink.checkpoint()
    cut_off(database, "all", 3)
    sink.append(event(50))
    assert sink.verify("all") == ChainVerification(False, event(50).event_id, "all", 3, Break.CHECKPOINT)
    with pytest.raises(AuditIntegrityError, match="does not reach"):
        sink.checkpoint()


def test_verification_can_start_at_a_checkpoint(database):
    sink = sink_on(database, streams=1)
    fill(sink, 4)
    (first,) = sink.checkpoint()
    for number in (10, 11, 12):
        sink.append(event(number))
    assert sink.chain.verify("all", since=first) == ChainVerification(True, None, "all", 3)
    execute(database, EVENTS.delete().where(EVENTS.c.seq <= 2))
    assert not sink.verify("all").verified
    assert sink.chain.verify("all", since=first).verified
    execute(database, EVENTS.delete().where(EVENTS.c.seq <= 4))
    assert sink.chain.verify("all", since=first).verified
    execute(database, EVENTS.delete().where(EVENTS.c.seq == 5))
    assert sink.chain.verify("all", since=first).reason is Break.GAP


def test_a_start_that_is_not_in_the_chain_is_a_break(database):
    sink = sink_on(database, streams=1)
    fill(sink, 4)
    wrong = Checkpoint("all", 2, "0" * 64, NOON)
    assert sink.chain.verify("all", since=wrong).first_broken_event_id == event(1).event_id
    assert sink.chain.verify("all", since=wrong._replace(seq=9)).reason is Break.HEAD
    assert sink.chain.verify("all", until=wrong).reason is Break.CHECKPOINT
    assert sink.chain.verify("all", until=wrong._replace(seq=9)).reason is Break.CHECKPOINT
    with pytest.raises(ConfigurationError, match="stream 'all'"):
        sink.chain.verify("07", since=wrong)


def test_a_key_is_changed_at_a_checkpoint(database):
    old, new = sink_on(database, streams=1, key="old"), sink_on(database, streams=1, key="new")
    fill(old, 3)
    (turn,) = old.checkpoint()
    new.append(event(10))
    assert not old.verify("all").verified
    assert not new.verify("all").verified
    assert old.chain.verify("all", until=turn) == ChainVerification(True, None, "all", 3)
    assert new.chain.verify("all", since=turn) == ChainVerification(True, None, "all", 1)


def test_checkpoints_travel_as_lines_of_json():
    one = Checkpoint("sub\u2028ject\n\x85", 3, "ab" * 32, NOON)
    two = Checkpoint("07", 2**40, "cd" * 32, NOON + timedelta(microseconds=1))
    for key in (None, "secret"):
        text = export_checkpoints([one, two], key)
        assert text.count("\n") == 2
        assert import_checkpoints(text, key) == [one, two]
        assert import_checkpoints(text.split("\n")) == [one, two]
    assert export_checkpoints([two]) == (
        '{"event_hash":"' + "cd" * 32 + '","seq":1099511627776,"stream":"07",'
        '"taken_at":"2026-03-01T12:00:00.000001+00:00"}\n'
    )


def test_a_line_that_was_changed_or_not_signed_is_refused():
    text = export_checkpoints([Checkpoint("07", 3, "ab" * 32, NOON)], "secret")
    for wrong in (
        text.replace('"seq":3', '"seq":2'),
        text.replace("07", "08"),
        export_checkpoints(import_checkpoints(text)),
    ):
        with pytest.raises(AuditIntegrityError, match="line 1 was not signed"):
            import_checkpoints(wrong, "secret")
    with pytest.raises(AuditIntegrityError, match="line 1 was not signed"):
        import_checkpoints(text, "another")


@pytest.mark.parametrize(
    "line",
    ["{", "[]", "5", "{}", '{"stream":"a","seq":"1","event_hash":"a","taken_at":"2026-03-01T12:00:00+00:00"}',
     '{"stream":"a","seq":1,"event_hash":"a","taken_at":"noon"}',
     '{"stream":"a","seq":1,"event_hash":"a","taken_at":"2026-03-01T12:00:00+00:00","more":1}'],
)  # fmt: skip
def test_a_line_that_is_no_checkpoint_is_named(line):
    with pytest.raises(AuditIntegrityError, match="line 2"):
        import_checkpoints("\n" + line)
