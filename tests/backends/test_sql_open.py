"""A store from a URL: the right one, or a line that says what is wrong."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.backends.memory import MemoryStore
from holdfast.backends.open import open_store
from holdfast.backends.sql.options import sqlite_options
from holdfast.backends.sql.store import SqlStore
from holdfast.backends.sql.url import parse, shown
from holdfast.errors import ConfigurationError, StoreUnavailable
from holdfast.machine.dead_letter import LETTER
from holdfast.store.codec import micros
from holdfast.testing import ManualClock


def test_the_scheme_tells_the_store() -> None:
    assert isinstance(open_store("memory://"), MemoryStore)
    for url in ("sqlite:///x.db", "postgresql://h/d", "postgres://h/d", "postgresql+psycopg://h/d", "mysql://h/d"):
        assert isinstance(open_store(url), SqlStore)
    assert type(open_store("redis://h/0")).__name__ == "RedisStore"


def test_clock_and_options_reach_the_store() -> None:
    clock = ManualClock()
    assert open_store("memory://", clock=clock).now() == micros(clock.wall())
    assert open_store("sqlite:///:memory:", clock=clock, durable=False).now() == micros(clock.wall())


def test_the_environment_says_how_files_are_opened_where_code_does_not() -> None:
    given = {
        "HOLDFAST_SQLITE_DURABLE": "no", "HOLDFAST_SQLITE_CONNECTIONS": "3", "STABILIZE_SQLITE_CONNECTIONS": "4",
        "STABILIZE_SQLITE_PATIENCE_S": "2.5",
    }  # fmt: skip
    assert sqlite_options({}, {}) == {"durable": True, "connections": 8, "patience": 30.0}
    assert sqlite_options({}, given) == {"durable": False, "connections": 3, "patience": 2.5}
    assert sqlite_options({"connections": 1}, given)["connections"] == 1


@pytest.mark.parametrize(
    "query", ["mode=ro", "durable=no", "check_same_thread=0&timeout=5", "uri=true", "journal_mode="]
)
def test_an_option_that_a_sqlite_url_does_not_have_is_refused_in_one_line(query: str) -> None:
    name = query.rpartition("&")[2].partition("=")[0]
    with pytest.raises(ValueError, match=f"^'{name}' is no option .*check_same_thread; .*patience= are arg") as refused:
        open_store(f"sqlite:///x.db?{query}")
    assert "\n" not in str(refused.value)


def test_a_sqlite_url_may_be_that_of_an_engine_too(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/x.db?check_same_thread=false&cached_statements=50")
    assert store.get(LETTER, ("1",)) == [None]
    assert (tmp_path / "x.db").exists()


@pytest.mark.parametrize(
    ("variable", "text"), [("DURABLE", "perhaps"), ("CONNECTIONS", "0"), ("PATIENCE_S", "0"), ("PATIENCE_S", "long")]
)
def test_a_bad_value_names_its_variable_when_a_file_is_opened(
    monkeypatch: pytest.MonkeyPatch, variable: str, text: str
) -> None:
    monkeypatch.setenv(f"HOLDFAST_SQLITE_{variable}", text)
    with pytest.raises(ConfigurationError, match=f"HOLDFAST_SQLITE_{variable} must be .*{text}"):
        open_store("sqlite:///x.db")
    open_store("postgresql://h/d")  # is none of its business


def test_a_store_waits_for_a_lock_as_long_as_the_environment_says(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOLDFAST_SQLITE_PATIENCE_S", "0.01")
    other = sqlite3.connect(tmp_path / "x.db", isolation_level=None)
    other.execute("PRAGMA journal_mode=WAL")
    other.execute("BEGIN IMMEDIATE")
    # After 30 seconds otherwise, when the test is over.
    with pytest.raises(StoreUnavailable, match=r"locked; .* or a transaction of this one that is still open"):
        open_store(f"sqlite:///{tmp_path}/x.db").ping()
    other.close()


@pytest.mark.parametrize("url", ["oracle://x", "holdfast.db", "", "://"])
def test_an_unknown_scheme_names_the_known_ones(url: str) -> None:
    with pytest.raises(ValueError, match=r"must begin with one of memory://, sqlite://, postgresql://"):
        open_store(url)


@pytest.mark.parametrize(
    ("package", "url", "extra"),
    [
        ("sqlalchemy", "sqlite:///x.db", "holdfast[sql]"),
        ("psycopg", "postgresql://h/d", "holdfast[postgres]"),
        ("pymysql", "mariadb://h/d", "holdfast[mariadb]"),
        ("redis", "redis://h/0", "holdfast[redis]"),
    ],
)
def test_a_missing_package_is_told_as_the_line_that_installs_it(package: str, url: str, extra: str) -> None:
    program = (
        f"import sys; sys.modules[{package!r}] = None\n"
        "from holdfast.backends.open import open_store\n"
        f"try: open_store({url!r})\n"
        "except ImportError as error: print(type(error).__name__, error)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("MissingExtra ")
    assert f"run: pip install '{extra}'" in done.stdout


@pytest.mark.parametrize(
    ("url", "safe"),
    [
        ("postgresql://u:p@h:5/d?sslmode=require", "postgresql://u:***@h:5/d?sslmode=require"),
        ("postgresql://u@h/d?password=p&x=1", "postgresql://u@h/d?password=***&x=1"),
        ("postgresql://u:p/q@h/d", "postgresql://…@h/d"),
        ("postgresql:///d?host=/tmp", "postgresql:///d?host=/tmp"),
        ("sqlite:///a/b.db", "sqlite:///a/b.db"),
        ("sqlite:////a/b.db", "sqlite:////a/b.db"),
    ],
)
def test_a_url_is_shown_without_its_secrets(url: str, safe: str) -> None:
    assert shown(url) == safe


def test_the_path_of_a_file_is_relative_or_absolute() -> None:
    assert parse("sqlite:///a.db").path == "a.db"
    assert parse("sqlite:////tmp/a%20b.db").path == "/tmp/a b.db"
    assert parse("sqlite://").path == parse("sqlite:///:memory:").path == ":memory:"
