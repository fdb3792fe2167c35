"""The plans that databases make of our statements: what is asked often is read from an index, in its order."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import psycopg
import pytest

from holdfast.backends.sql.changing import swap_step
from holdfast.backends.sql.dialect import Sqlite
from holdfast.backends.sql.pages import Read
from holdfast.backends.sql.plans import Plans
from holdfast.backends.sql.postgres import PostgresDatabase
from holdfast.backends.sql.reading import Question
from holdfast.backends.sql.statement import Statement
from holdfast.backends.sql.store import SqlStore
from holdfast.backends.sql.where import ask
from holdfast.errors import Conflict
from holdfast.store.port import Delete, Insert, Swap
from holdfast.store.query import Condition, Cursor, Where, among, equal, outside
from holdfast.store.record import Index, Kind, evolve
from holdfast.workflows.records import EVENT, STAGE, EventRecord, StageRecord
from tests.services.postgres import server


class Job(NamedTuple):
    id: str
    version: int
    due_at: int | None
    state: str
    lane: str
    made_at: int
    user: str | None  # a word that SQL knows
    body: str


JOB = Kind(
    "job",
    Job,
    indexes=(
        Index((), "due_at"),
        Index(("state",), "due_at"),
        Index(("state",), "made_at"),
        Index(("lane", "state"), "made_at"),
        Index(("body",), "made_at", few=True),
    ),
    unique=("user",),
    tally=("state", "lane"),
)
NOW = 10_000
DUE = Condition("due_at", "<=", NOW)
PAGES: dict[str, tuple[Where, str]] = {
    "due": ((DUE,), "due_at"),
    "due in a state": ((*equal(state="new"), DUE), "due_at"),
    "whatever is scheduled": ((), "due_at"),
    "of a state": (equal(state="done"), "made_at"),
    "of a lane and a state": (equal(lane="l1", state="new"), "made_at"),
    "of some states": ((among("state", ("new", "done")),), "made_at"),
    "of some lanes and states": ((among("lane", ("l1", "l2")), among("state", ("new", "done"))), "made_at"),
    "of a state, but for some lanes": ((*equal(state="new"), outside("lane", ("l1",))), "made_at"),
    "by id": ((), "id"),
}
AFTER = Cursor(50, "00050")


def job(at: int) -> Job:
    # Most are done, and scheduled no more.
    state = "new" if at % 20 == 0 else "done"
    return Job(f"{at:05}", 1, at if state == "new" else None, state, f"l{at // 20 % 4}", at, None, "x" * 200)


def fill_jobs(url: str) -> SqlStore:
    store = SqlStore(url, kinds=[JOB], durable=False)
    store.create_tables()
    store.commit([Insert(JOB, job(at)) for at in range(20_000)])
    return store


@pytest.fixture(scope="module")
def sqlite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqlStore]:
    store = fill_jobs(f"sqlite:///{tmp_path_factory.mktemp('plans') / 'jobs.db'}")
    yield store
    store.close()


@pytest.fixture(scope="module")
def postgres() -> Iterator[SqlStore]:
    store = fill_jobs(server().fresh_database())
    with psycopg.connect(store.address.url, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE")
    yield store
    store.close()


def plan_of(store: SqlStore, where: Where, by: str, *, descending: bool, after: Cursor | None) -> str:
    plans = store._plans(JOB)
    asked = ask(JOB, where, plans.dialect)
    assert asked is not None
    return explained(store, *Question(plans, asked, by).page(50, descending=descending, after=after))


def explained(store: SqlStore, statement: Statement, values: Sequence[Any]) -> str:
    if store.address.dialect == "sqlite":
        with sqlite3.connect(store.address.path) as connection:
            found = connection.execute(f"EXPLAIN QUERY PLAN {statement.sql}", statement.arrange(values)).fetchall()
            return "\n".join(row[3] for row in found)
    assert isinstance(store._database, PostgresDatabase)
    session = store._database._connect()
    try:
        # The plan that is used again and again does not know the values.
        session.execute(f"PREPARE page AS {statement.sql}")
        given = ", ".join(["NULL"] * len(statement.arrange(values)))
        found = session.execute(f"EXPLAIN (COSTS OFF) EXECUTE page{f'({given})' if given else ''}")
        return "\n".join(row[0] for row in found)
    finally:
        session.close()


@pytest.mark.parametrize("descending", [False, True], ids=["up", "down"])
@pytest.mark.parametrize("after", [None, AFTER], ids=["first", "next"])
@pytest.mark.parametrize("page", PAGES)
def test_sqlite_reads_pages_in_the_order_of_an_index(
    sqlite: SqlStore, page: str, after: Cursor | None, descending: bool
) -> None:
    plan = plan_of(sqlite, *PAGES[page], descending=descending, after=after)
    assert "SCAN holdfast_job\n" not in f"{plan}\n", plan
    if "some" not in page or "but" in page:
        assert "TEMP B-TREE" not in plan, plan
    else:
        # Each range is read in order up to the limit; what is sorted are a few ids.
        assert plan.count("SEARCH holdfast_job USING COVERING INDEX") == (2 if "lanes" not in page else 4), plan


@pytest.mark.parametrize("descending", [False, True], ids=["up", "down"])
@pytest.mark.parametrize("after", [None, AFTER], ids=["first", "next"])
@pytest.mark.parametrize("page", PAGES)
def test_postgresql_reads_pages_in_the_order_of_an_index(
    postgres: SqlStore, page: str, after: Cursor | None, descending: bool
) -> None:
    plan = plan_of(postgres, *PAGES[page], descending=descending, after=after)
    assert "Seq Scan" not in plan, plan
    if "some" not in page or "but" in page:
        assert "Sort" not in plan, plan
        assert "Index" in plan, plan
    else:
        assert plan.count("Limit") >= (2 if "lanes" not in page else 4), plan


@pytest.mark.parametrize("descending", [False, True], ids=["up", "down"])
@pytest.mark.parametrize("after", [None, AFTER], ids=["first", "next"])
def test_postgresql_takes_the_best_index_also_where_another_one_seems_as_good(
    after: Cursor | None, descending: bool
) -> None:
    """Every other row is in the lane, as far as the planner knows; of those that come next perhaps none is."""
    store = SqlStore(server().fresh_database(), kinds=[JOB], durable=False)
    store.create_tables()
    store.commit([Insert(JOB, job(at)._replace(state="new", lane=f"l{at % 2}")) for at in range(20_000)])
    with psycopg.connect(store.address.url, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE")
    plan = plan_of(store, equal(lane="l0", state="new"), "made_at", descending=descending, after=after)
    store.close()
    assert "holdfast_job_lane_state_made_at_idx" in plan, plan
    assert "Filter" not in plan, plan


@pytest.mark.parametrize("after", [None, AFTER], ids=["first", "next"])
@pytest.mark.parametrize("name", ["sqlite", "postgres"])
def test_an_index_that_finds_few_is_read_whatever_else_is_asked_for(
    request: pytest.FixtureRequest, name: str, after: Cursor | None
) -> None:
    where = equal(lane="l1", state="new", body="b")
    plan = plan_of(request.getfixturevalue(name), where, "made_at", descending=True, after=after)
    assert "holdfast_job_body_made_at_idx" in plan, plan
    assert "TEMP B-TREE" not in plan, plan
    assert "Sort" not in plan, plan


WORKFLOWS = 300


def fill_workflows(url: str) -> SqlStore:
    store = SqlStore(url, kinds=[STAGE, EVENT], durable=False)
    store.create_tables()
    for kind, make in ((STAGE, stage), (EVENT, entry)):
        store.commit([Insert(kind, make(f"w{at:04}", n)) for at in range(WORKFLOWS) for n in range(20)])
    store.commit([Insert(EVENT, entry("long", n)) for n in range(10_000)])
    return store


def stage(workflow: str, n: int) -> StageRecord:
    id = f"{workflow}.{n:09}"
    return StageRecord(id, 1, None, workflow, str(n), "SUCCEEDED", 1, 1, 2, "{}", "{}", "x" * 100)


def entry(workflow: str, n: int) -> EventRecord:
    return EventRecord(f"{workflow}.{n:09}", 1, None, workflow, n, "[]")


@pytest.fixture(scope="module")
def flows_in_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SqlStore]:
    store = fill_workflows(f"sqlite:///{tmp_path_factory.mktemp('plans') / 'flows.db'}")
    yield store
    store.close()


@pytest.fixture(scope="module")
def flows_in_postgres() -> Iterator[SqlStore]:
    store = fill_workflows(server().fresh_database())
    with psycopg.connect(store.address.url, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE")
    yield store
    store.close()


@pytest.mark.parametrize("kind", [STAGE, EVENT], ids=["stages", "log"])
@pytest.mark.parametrize("name", ["flows_in_sqlite", "flows_in_postgres"])
def test_what_is_within_a_workflow_is_found_by_the_ids_alone(
    request: pytest.FixtureRequest, name: str, kind: Kind[Any]
) -> None:
    store: SqlStore = request.getfixturevalue(name)
    plans = store._plans(kind)
    where = equal(workflow="w0100")
    asked = ask(kind, where, plans.dialect)
    assert asked is not None
    question = Question(plans, asked, "id")
    after = Cursor("w0100.000000007", "w0100.000000007")
    pages = [
        question.page(10, descending=down, after=cursor, lock=lock)
        for down in (False, True)
        for cursor in (None, after)
        for lock in ("", "skip")
    ]
    others = [
        (plans.tally(asked.terms, (), arrivals=False).statement, asked.values),
        (plans.sweep(Read(asked.terms, "id"), None), asked.values),
        (plans.sweep(Read(asked.terms, "id", limit=10, lock="wait"), None), asked.values),
    ]
    for statement, values in [*pages, *others]:
        plan = explained(store, statement, values)
        for bad in ("SCAN holdfast", "TEMP B-TREE", "Seq Scan", "Sort", "at_idx", "Filter: (id"):
            assert bad not in plan, plan
        assert "(id>? AND id<?)" in plan or "Index Cond: ((id >= $2) AND (id <= $3)" in plan, plan


@pytest.mark.parametrize("descending", [False, True], ids=["up", "down"])
def test_a_page_of_a_long_log_reads_only_what_it_gives(flows_in_sqlite: SqlStore, descending: bool) -> None:
    """Of two bounds on one side SQLite reads from the first that it is given, were it the farther one."""
    plans = flows_in_sqlite._plans(EVENT)
    last = f"long.{30 if descending else 9970:09}"
    for where, after in (
        (equal(workflow="long"), Cursor(last, last)),
        ((*equal(workflow="long"), Condition("id", "<" if descending else ">", last)), None),
        ((*equal(workflow="long"), Condition("id", "<=" if descending else ">=", last)), None),
    ):
        asked = ask(EVENT, where, plans.dialect)
        assert asked is not None
        statement, values = Question(plans, asked, "id").page(100, descending=descending, after=after)
        steps = 0

        def count() -> int:
            nonlocal steps
            steps += 1
            return 0

        with sqlite3.connect(flows_in_sqlite.address.path) as connection:
            connection.set_progress_handler(count, 1)
            found = connection.execute(statement.sql, statement.arrange(values)).fetchall()
        assert len(found) in (29, 30, 31)
        assert steps < 5000  # with what it takes to open the file


def test_what_is_rare_is_found_by_its_own_index(postgres: SqlStore) -> None:
    where = equal(lane="l1", state="new", id="00020")
    plan = plan_of(postgres, where, "made_at", descending=False, after=None)
    assert "holdfast_job_pkey" in plan, plan


@pytest.fixture
def emptied() -> Iterator[SqlStore]:
    """A queue through which much has gone."""
    store = SqlStore(server().fresh_database(), kinds=[JOB], durable=False)
    store.create_tables()
    store.commit([Insert(JOB, job(at)) for at in range(5_000)])
    store.sweep(JOB, ())
    yield store
    store.close()


def vacuum(store: SqlStore, *, truncate: bool) -> None:
    with psycopg.connect(store.address.url, autocommit=True) as connection:
        connection.execute(f"VACUUM (ANALYZE, TRUNCATE {truncate}) holdfast_job")


def test_postgresql_finds_an_id_by_the_key_where_there_was_nothing_when_it_was_vacuumed(emptied: SqlStore) -> None:
    vacuum(emptied, truncate=False)
    plans, old = emptied._plans(JOB), job(1)
    write, _ = swap_step(plans, old, evolve(old, body="y"))
    for statement in (plans.one, write.one, plans.delete.one):
        plan = explained(emptied, statement, ["0"] * (statement.sql.count("$")))
        assert "holdfast_job_pkey" in plan, plan


def test_postgresql_plans_anew_what_was_planned_for_an_empty_table(
    emptied: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.backends.sql.postgres.PLANNED_FOR_S", 0.0)
    monkeypatch.setattr("holdfast.backends.sql.postgres.PLANNED_FOR_USES", 20)
    vacuum(emptied, truncate=True)

    def read() -> int:
        """How many rows the connection has read without an index."""
        database = emptied._database
        assert isinstance(database, PostgresDatabase)
        database._with(lambda session: session.execute("SELECT pg_stat_force_next_flush()"), repeat=True)
        emptied.get(JOB, ["nobody"])  # what was read is told at the end of a transaction
        asked = "SELECT seq_tup_read FROM pg_stat_user_tables WHERE relname = 'holdfast_job'"
        return int(database._with(lambda session: session.execute(asked), repeat=True)[0][0])

    def look() -> None:
        for at in range(40):
            assert emptied.get(JOB, [f"{at:05}"]) == [job(at)]

    assert emptied.get(JOB, ["00000"]) == [None]
    emptied.commit([Insert(JOB, job(at)) for at in range(5_000)])
    look()  # as it was planned, and then as it is planned again
    before = read()
    look()
    assert 0 < before == read()


def test_records_without_a_value_to_sort_by_are_not_in_the_index(sqlite: SqlStore) -> None:
    with sqlite3.connect(sqlite.address.path) as connection:
        sql = connection.execute("SELECT sql FROM sqlite_master WHERE name = 'holdfast_job_due_at_idx'").fetchone()[0]
    assert sql.endswith("WHERE due_at IS NOT NULL")


def test_the_same_conditions_with_other_values_are_the_same_statement(sqlite: SqlStore) -> None:
    plans = sqlite._plans(JOB)

    def statement(*lanes: str) -> object:
        asked = ask(JOB, (among("lane", lanes), Condition("made_at", "<", len(lanes[0]))), plans.dialect)
        assert asked is not None
        return Question(plans, asked, "made_at").page(10)[0]

    assert statement("a", "b") is statement("ccc", "d")
    assert statement("a", "b") is not statement("a", "b", "c")


def test_a_change_of_a_record_with_an_id_of_its_own_is_fenced_by_its_version_alone() -> None:
    old = Job("a", 1, 5, "new", "l1", 1, None, "a long story")
    new = evolve(old, state="done", due_at=None)
    own = Kind("job", Job, fresh_ids=True)
    write, values = swap_step(Plans(own, Sqlite()), old, new)
    assert (
        write.one.sql
        == "UPDATE holdfast_job SET version=?, due_at=?, state=? WHERE holdfast_job.id = ? AND holdfast_job.version = ?"
    )
    assert [*values] == [2, None, "done", "a", 1]
    assert "a long story" in swap_step(Plans(JOB, Sqlite()), old, new)[1]


def test_a_change_of_a_record_is_fenced_by_its_version_and_what_it_was_born_with() -> None:
    old = Job("a", 1, 5, "new", "l1", 17, None, "a long story" * 1000)
    plans = Plans(Kind("job", Job, born="made_at"), Sqlite())
    write, values = swap_step(plans, old, evolve(old, state="done"))
    assert write.one.sql.endswith(
        "SET version=?, state=? WHERE holdfast_job.id = ? AND holdfast_job.version = ? AND holdfast_job.made_at = ?"
    )
    assert [*values] == [2, "done", "a", 1, 17]
    assert plans.fence(old) == ("a", 1, 17)


def test_changes_of_the_same_fields_are_the_same_statement() -> None:
    for kind in (JOB, Kind("job", Job, fresh_ids=True)):
        plans = Plans(kind, Sqlite())
        one, other = Job("a", 1, 5, "new", "l1", 1, None, "b"), Job("c", 7, 5, "old", "l1", 1, None, "b")
        first, _ = swap_step(plans, one, evolve(one, state="done"))
        second, values = swap_step(plans, other, evolve(other, state="lost"))
        assert first is second
        assert [*values][:4] == [8, "lost", "c", 7]
        third, values = swap_step(plans, other, evolve(other, lane="l2"))
        assert third is not first
        assert [*values][:4] == [8, "l2", "c", 7]


def test_whatever_is_changed_the_record_is_as_it_was_asked_for(sqlite: SqlStore, postgres: SqlStore) -> None:
    for store in (sqlite, postgres):
        before = Job("changing", 1, 5, "new", "l1", 1 << 40, None, "story")
        store.commit([Insert(JOB, before)])
        for after in (
            evolve(before, state="done"),
            evolve(before, state="".join(("do", "ne"))),  # the same in another object
            evolve(before, body="long" * 1000),
            evolve(before, state="new", body="long" * 1000),  # a long text stays
            evolve(before, due_at=None, lane="l2"),
            before,
        ):
            after = after._replace(version=before.version + 1)
            store.commit([Swap(JOB, before, after)])
            assert store.get(JOB, [before.id]) == [after]
            with pytest.raises(Conflict):
                store.commit([Swap(JOB, before, after)])
            before = after
        store.commit([Delete(JOB, before)])


def test_statements_that_nobody_uses_again_do_not_pile_up(sqlite: SqlStore) -> None:
    plans = Plans(JOB, sqlite._plans(JOB).dialect)
    for limit in range(600):
        plans.page(Read((), "id", limit=limit))
    assert len(plans._kept) <= 512


def test_counts_are_read_from_counters(sqlite: SqlStore, postgres: SqlStore) -> None:
    for store in (sqlite, postgres):
        plans = store._plans(JOB)
        assert "holdfast_job_tally" in plans.tally((), ("state",), arrivals=False).statement.sql
        assert "holdfast_job_tally" not in plans.tally((), ("made_at",), arrivals=False).statement.sql
        assert store.tally(JOB, ("state",)) == {("new",): 1000, ("done",): 19_000}
