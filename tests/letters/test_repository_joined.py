"""A letter that lives or dies with the caller's own transaction."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import sqlalchemy as sa

from holdfast.errors import Conflict
from holdfast.letters.repository import FailedOperationRepository
from tests.stores import SQL_STORES

Letters = FailedOperationRepository
pytestmark = pytest.mark.parametrize("store", SQL_STORES, indirect=True)  # the others have no transactions


@pytest.fixture
def engine(letters: Letters) -> Iterator[sa.Engine]:
    url = letters.store.url
    for plain, driver in (("postgresql:", "postgresql+psycopg:"), ("mariadb:", "mariadb+pymysql:")):
        url = url.replace(plain, driver)
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    letters.count()  # the tables are there
    yield engine
    engine.dispose()


def test_a_letter_is_there_once_the_caller_commits(letters: Letters, engine: sa.Engine) -> None:
    with engine.connect() as connection, connection.begin():
        letter = letters.create("d", "f", request_data={"a": 1}, connection=connection)
        many = letters.create_many([{"domain": "d", "failure_type": "f"}] * 2, connection=connection)
    assert letters.get_by_id(letter.id) == letter
    assert [found.id for found in letters.find_by_status("pending")] == [letter.id, *(made.id for made in many)]
    assert letters.inflow("d") == 3


def test_a_letter_goes_when_the_caller_rolls_back(letters: Letters, engine: sa.Engine) -> None:
    with engine.connect() as connection:
        transaction = connection.begin()
        letter = letters.create("d", "f", connection=connection, dedup_key="k")
        transaction.rollback()
    assert letters.get_by_id(letter.id) is None
    assert letters.count() == letters.inflow() == 0
    assert letters.create("d", "f", dedup_key="k").occurrences == 1


def test_a_dedup_key_that_is_held_raises_its_occurrences_within_the_transaction(
    letters: Letters, engine: sa.Engine
) -> None:
    held = letters.create("d", "f", dedup_key="k")
    with engine.connect() as connection:
        transaction = connection.begin()
        assert letters.create("d", "f", dedup_key="k", connection=connection).id == held.id
        transaction.rollback()
    with engine.connect() as connection, connection.begin():
        assert letters.create("d", "f", dedup_key="k", connection=connection).occurrences == 2
    assert letters.count() == 1
    found = letters.get_by_id(held.id)
    assert found is not None
    assert found.occurrences == 2


def test_a_key_that_the_transaction_itself_holds_is_a_conflict_and_leaves_it_usable(
    letters: Letters, engine: sa.Engine
) -> None:
    with engine.connect() as connection, connection.begin():
        first = letters.create("d", "f", dedup_key="k", connection=connection)
        with pytest.raises(Conflict):
            letters.create("d", "f", dedup_key="k", connection=connection)
        second = letters.create("d", "f", connection=connection)
    assert [letter.id for letter in letters.find_by_status("pending")] == [first.id, second.id]


def test_a_store_without_transactions_says_so(letters: Letters) -> None:
    if letters.store.url.startswith(("memory", "redis")):
        with pytest.raises(TypeError, match="connection"):
            letters.create("d", "f", connection=object())
        assert letters.count() == 0
