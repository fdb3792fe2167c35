"""`holdfast db`: the schema of a SQL store, and what any store holds."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, Final

import click

from holdfast.cli.exits import ExitCode, NoStore, WrongUsage
from holdfast.cli.filters import json_option
from holdfast.cli.output import document, facts, say
from holdfast.cli.session import Session, pass_session, refuse_memory, sqlite_file, store_options
from holdfast.cli.times import stamp
from holdfast.errors import MissingExtra, SchemaError
from holdfast.machine.outbox_entry import CLAIMABLE, OutboxStatus

_SQL: Final = ("sqlite", "postgresql", "postgres", "mysql", "mariadb")

revision_option: Final = click.option(
    "--revision", default="head", show_default=True, metavar="REVISION", help="The revision to go to."
)


@click.group()
@store_options
def db() -> None:
    """The schema of a SQL store.

    SQLite files upgrade themselves; on a server it is done here, by somebody who may create tables.
    """


@db.command()
@revision_option
@json_option
@store_options
@pass_session
def upgrade(session: Session, revision: str, as_json: bool) -> None:
    """Create or upgrade the tables. Safe when several hosts do it at once."""
    # Until the app is closed: its breakers may have asked just before the tables were there.
    click.get_current_context().with_resource(_without_complaints())
    migrate = _migrate(session)
    before = migrate.check(_database(session, create=True)).applied
    report = migrate.upgrade(_database(session, create=True), revision)
    if as_json:
        document({**_report(report), "was": before})
    elif report.applied == before:
        say(str(report))
    else:
        say(f"{report.url}: upgraded from revision {before or 'none'} to {report.applied}")


@db.command()
@json_option
@store_options
@pass_session
def check(session: Session, as_json: bool) -> int:
    """Say whether the tables are of this program's revision; exit code 4 if not."""
    report = _migrate(session).check(_database(session))
    if as_json:
        document(_report(report))
    elif report.is_current:
        say(str(report))
    if report.is_current:
        return ExitCode.OK
    raise NoStore(f"{report}" + ("; upgrade this program" if report.is_newer else "; run: holdfast db upgrade"))


@db.command()
@revision_option
@click.option("--since", default="base", show_default=True, metavar="REVISION", help="The revision to start from.")
@store_options
@pass_session
def sql(session: Session, revision: str, since: str) -> None:
    """Print the statements of an upgrade for somebody else to run; nothing is connected to."""
    click.echo(_migrate(session).sql(session.where(), revision, since))


@db.command()
@json_option
@store_options
@pass_session
def info(session: Session, as_json: bool) -> None:
    """Show where the store is, its revision and time, and how much it holds."""
    shown = _info(session)
    if as_json:
        document(shown)
        return
    time = shown.pop("time")
    facts(
        [
            *((name.replace("_", " "), str(value)) for name, value in shown.items() if value is not None),
            ("time", stamp(time)),
        ]
    )


def _info(session: Session) -> dict[str, Any]:
    shown: dict[str, Any] = {"url": session.hold().store.url, "revision": None, "revision_needed": None}
    if _is_sql(session.where()):
        report = _migrate(session).check(_database(session))
        shown.update(url=report.url, revision=report.applied, revision_needed=report.needed)
    hold = session.hold()
    hold.store.ping()
    shown["letters"] = session.letters.count()
    shown["active_letters"] = session.letters.count_all()
    shown["breakers"] = len(session.breakers.get_all_states())
    if shown["revision"] is not None and shown["revision"] == shown["revision_needed"]:
        outbox = session.outbox
        shown["outbox_waiting"] = outbox.tally(status=CLAIMABLE).get((), 0)
        shown["outbox_abandoned"] = outbox.tally(status=OutboxStatus.ABANDONED).get((), 0)
    shown["time"] = session.now()
    return shown


@contextmanager
def _without_complaints() -> Iterator[None]:
    """An app that is loaded to have its tables made shares breakers already, and would warn that there are none."""
    log = logging.getLogger("holdfast.breakers")
    log.addFilter(_is_no_complaint)
    try:
        yield
    finally:
        log.removeFilter(_is_no_complaint)


def _is_no_complaint(record: logging.LogRecord) -> bool:
    return SchemaError.__name__ not in record.getMessage()


def _is_sql(url: str) -> bool:
    return url.partition(":")[0].partition("+")[0].lower() in _SQL


def _migrate(session: Session) -> ModuleType:
    """The module that knows the revisions. Raises WrongUsage for a store without a schema, MissingExtra."""
    url = session.where()
    refuse_memory(url)
    if not _is_sql(url):
        raise WrongUsage(f"{url.partition(':')[0]}:// has no schema to look after; it is ready as it is")
    try:
        from holdfast.backends.sql import migrate
    except ModuleNotFoundError as error:
        raise MissingExtra("a SQL store needs SQLAlchemy and Alembic: pip install 'holdfast[sql]'") from error
    return migrate


def _database(session: Session, *, create: bool = False) -> Any:
    """The URL, or the app's store. Raises NoStore for a SQLite file that is not there."""
    if session.has_app:
        return session.hold().store
    url = session.where()
    file = sqlite_file(url)
    if file is not None and not create and not file.exists():
        raise NoStore(f"there is no database at {file}; make it with: holdfast db upgrade --url {url}")
    return url


def _report(report: Any) -> dict[str, Any]:
    return {"url": report.url, "revision": report.applied, "needed": report.needed, "is_current": report.is_current}
