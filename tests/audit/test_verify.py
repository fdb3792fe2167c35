"""Verification: whatever is changed, taken away or put in between is found, and said where."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from holdfast.audit.chain import link_hash
from holdfast.audit.rows import link_of
from holdfast.audit.verifier import Verifier
from holdfast.audit.verify import Break, ChainVerification
from tests.audit.trail import event, execute, fill, rows_of, sink_on, statements_of
from tests.databases import TABLES, fresh_database

EVENTS, HEADS = TABLES.audit_events, TABLES.chain_heads


@pytest.fixture
def sink(database):
    return sink_on(database, streams=1)


def at(seq):
    return EVENTS.update().where(EVENTS.c.seq == seq)


def test_an_untouched_stream_is_verified_in_pages(database, sink):
    fill(sink, 25)
    paged = Verifier(sink.tables, sink.run, sink.arun, stream_of=sink.stream_of, page=10)
    with statements_of(database) as seen:
        assert paged.verify("all") == ChainVerification(True, None, "all", 25)
    assert len([one for one in seen if one.count("prior_hash") and "LIMIT" in one]) == 3
    assert paged.verify_all() == [ChainVerification(True, None, "all", 25)]
    assert bool(sink.verify("all"))


def test_an_empty_trail_and_an_unknown_stream_are_in_order(sink):
    assert sink.verify_all() == []
    assert sink.verify("nowhere") == ChainVerification(True, None, "nowhere", 0)


@pytest.mark.parametrize(
    ("change", "seq", "reason"),
    [
        ({"event_type": "erasure_completed"}, 5, Break.HASH),
        ({"event_type": "Erasure_requested"}, 5, Break.HASH),
        ({"subject_ref": "bob"}, 5, Break.HASH),
        ({"payload": {"refs": 4, "external": 1, "target": "crm é 4"}}, 5, Break.HASH),
        ({"payload": {}}, 5, Break.HASH),
        ({"occurred_at": event(8).occurred_at}, 5, Break.HASH),
        ({"entry_id": event(1).event_id}, 5, Break.HASH),
        ({"event_hash": "0" * 64}, 5, Break.HASH),
        ({"prior_hash": "0" * 64}, 5, Break.LINK),
        ({"prior_hash": None}, 5, Break.LINK),
        ({"event_hash": None}, 5, Break.UNHASHED),
        ({"seq": 77}, 6, Break.GAP),
        ({"seq": 0}, 0, Break.GAP),
        ({"seq": -3}, -3, Break.GAP),
        ({"stream": "other"}, 6, Break.GAP),
        ({"stream": None}, 6, Break.GAP),
        ({"seq": None}, 6, Break.GAP),
    ],
    ids=str,
)
def test_an_edit_is_found_at_the_first_event_that_does_not_fit(database, sink, change, seq, reason):
    fill(sink, 10)
    execute(database, at(5).values(change))
    (broken_id,) = [row.event_id for row in rows_of(database) if row.seq == seq and row.stream == "all"]
    found = sink.verify("all")
    assert (found.verified, found.first_broken_event_id, found.reason) == (False, broken_id, reason)
    assert not all(sink.verify_all())


def test_deleted_events_show_at_the_next_one(database, sink):
    fill(sink, 10)
    execute(database, EVENTS.delete().where(EVENTS.c.seq.in_([1, 2])))
    assert sink.verify("all") == ChainVerification(False, event(2).event_id, "all", 0, Break.GAP)


def test_a_chain_without_its_end_disagrees_with_its_head(database, sink):
    fill(sink, 10)
    execute(database, EVENTS.delete().where(EVENTS.c.seq > 7))
    assert sink.verify("all") == ChainVerification(False, event(6).event_id, "all", 7, Break.HEAD)
    execute(database, EVENTS.delete())
    assert sink.verify("all") == ChainVerification(False, None, "all", 0, Break.HEAD)
    assert [one.verified for one in sink.verify_all()] == [False]


def test_a_head_that_was_changed_or_removed_is_found(database, sink):
    fill(sink, 10)
    for change in ({"seq": 9}, {"seq": 11}, {"seq": 10, "last_hash": "0" * 64}, {"last_hash": None}):
        execute(database, HEADS.update().values(change))
        assert sink.verify("all").reason is Break.HEAD
    execute(database, HEADS.delete())
    assert sink.verify("all") == ChainVerification(False, event(9).event_id, "all", 10, Break.NO_HEAD)
    assert [one.reason for one in sink.verify_all()] == [Break.NO_HEAD]


def test_swapped_events_are_found(database, sink):
    fill(sink, 10)
    execute(database, at(4).values(seq=99), at(7).values(seq=4), at(99).values(seq=7))
    assert sink.verify("all").first_broken_event_id == event(6).event_id


def test_an_event_put_in_past_the_chain_is_found(database, sink):
    fill(sink, 3)
    sink_on(database, chained=False).append(event(50))
    assert sink.verify("all") == ChainVerification(False, event(50).event_id, "all", 3, Break.UNHASHED)
    assert sink.verify_all() == [ChainVerification(False, event(50).event_id, "all", 3, Break.UNHASHED)]


@pytest.mark.parametrize("streams", [16, "subject"])
def test_an_event_past_the_chain_is_found_for_a_subject_that_has_none(database, streams):
    sink = sink_on(database, streams=streams)
    sink.append(event(1))
    sink_on(database, chained=False).append(event(50, "zoe"))
    (bad,) = [one for one in sink.verify_all() if not one.verified]
    assert (bad.stream, bad.first_broken_event_id) == (sink.stream_of("zoe"), event(50).event_id)
    assert sink.verify(sink.stream_of("ann")).verified
    assert not sink.verify(sink.stream_of("zoe")).verified


def test_events_from_before_the_chain_are_in_order(database, sink):
    fill(sink_on(database, chained=False), 5)
    sink.append(event(9))
    assert sink.verify("all") == ChainVerification(True, None, "all", 1)


def test_events_appended_while_it_verifies_do_not_disturb_it(database, sink):
    fill(sink, 6)
    numbers = iter(range(100, 200))

    def run(work):
        answer = sink.run(work)
        sink.append(event(next(numbers)))
        return answer

    meanwhile = Verifier(sink.tables, run, sink.arun, stream_of=sink.stream_of, page=2)
    assert meanwhile.verify("all") == ChainVerification(True, None, "all", 6)


def rehashed(database, key=None):
    """What somebody does who knows how the chain is made: edit, and hash everything behind it anew, heads as well."""
    rows, prior = rows_of(database), None
    updates = []
    for row in rows:
        payload = {"refs": 999} if row.seq == 3 else row.payload
        link = link_of(row)._replace(payload=payload, prior_hash=prior)
        prior = link_hash(link, key)
        mine = EVENTS.update().where(EVENTS.c.event_id == row.event_id)
        updates.append(mine.values(payload=payload, prior_hash=link.prior_hash, event_hash=prior))
    execute(database, *updates, HEADS.update().values(last_hash=prior))


def test_without_the_key_nobody_can_hash_anew(database):
    sink = sink_on(database, streams=1, key="secret")
    fill(sink, 6)
    assert sink.verify("all").verified
    for key in (None, b"guess"):
        rehashed(database, key)
        found = sink.verify("all")
        assert (found.first_broken_event_id, found.reason) == (event(0).event_id, Break.HASH)


def test_without_a_key_hashing_anew_is_what_checkpoints_are_for(database, sink):
    fill(sink, 4)
    sink.checkpoint()
    fill_more = [event(n) for n in (10, 11)]
    sink.run(lambda session: sink.append_in(session, fill_more))
    rehashed(database)
    assert sink.verify("all") == ChainVerification(False, event(3).event_id, "all", 3, Break.CHECKPOINT)
    execute(database, TABLES.checkpoints.delete())
    assert sink.verify("all").verified  # nothing is left that could know


@pytest.mark.parametrize(
    "damage",
    [
        "payload = '{'",
        "occurred_at = 'yesterday'",
        "entry_id = 'nobody'",
        "subject_ref = x'ff00'",
        "seq = 'four'",
        "payload = 'null'",
        "event_hash = 5",
    ],
)
def test_in_sqlite_which_keeps_anything_a_row_that_cannot_be_read_is_a_break(tmp_path, damage):
    with fresh_database("sqlite", tmp_path) as database:
        sink = sink_on(database, streams=1)
        fill(sink, 8)
        execute(database, sa.text(f"UPDATE {EVENTS.name} SET {damage} WHERE seq = 4"))
        found = sink.verify("all")
        assert not found.verified
        assert found.events == 3
        assert found.first_broken_event_id in (event(3).event_id, event(4).event_id)


def test_in_sqlite_an_id_that_is_none_is_a_break_without_an_event(tmp_path):
    with fresh_database("sqlite", tmp_path) as database:
        sink = sink_on(database, streams=1)
        fill(sink, 8)
        execute(database, sa.text(f"UPDATE {EVENTS.name} SET event_id = 'x' WHERE seq = 4"))
        assert sink.verify_all() == [ChainVerification(False, None, "all", 3, Break.UNREADABLE)]
