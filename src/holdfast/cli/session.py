"""Which store a command acts on: `--url`, or the Holdfast of a program named by `--app`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from datetime import datetime
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast
from urllib.parse import unquote, urlsplit

import click

from holdfast.cli.api import TOKEN, Api
from holdfast.cli.exits import NoStore, WrongUsage
from holdfast.cli.remote import Remote, is_remote
from holdfast.errors import ConfigurationError, PolicyError
from holdfast.store.codec import instant

if TYPE_CHECKING:
    from holdfast.app import Holdfast
    from holdfast.audit.sink import DatabaseAuditSink
    from holdfast.breakers.breakers import Breakers
    from holdfast.cli.mounted import Mounted
    from holdfast.config import Settings
    from holdfast.letters.letters import Letters
    from holdfast.outbox.outbox import Outbox
    from holdfast.outbox.sagas.sagas import Sagas
    from holdfast.outbox.works import Works
    from holdfast.workflows.workflows import Workflows

F = TypeVar("F", bound=Callable[..., Any])

ASK: Final = (
    "which store? Set HOLDFAST_URL or --url (sqlite:///holdfast.db, postgresql://…, redis://…), "
    "or HOLDFAST_APP or --app (module:attribute), or put url or app into holdfast.toml"
)
AUDIT_KEY: Final = "HOLDFAST_AUDIT_KEY"
NEEDS_SQL: Final = (
    "{} has no outbox, sagas or audit trail: they need a SQL database; "
    "use sqlite:///holdfast.db, postgresql://… or mariadb://…"
)
ONE_PROCESS: Final = (
    "{} lives in one process only; this one would look at an empty store of its own. "
    "Use the store that your program shares: sqlite:///holdfast.db, postgresql://… or redis://…"
)


class Session:
    """What the options say, and the Holdfast that they name; it is opened when a command first asks for it."""

    def __init__(self) -> None:
        self.url: str | None = None
        self.app: str | None = None
        self.prefix: str | None = None
        self.token_file: Path | None = None
        self.debug = False
        self._hold: Holdfast | None = None
        self._mounted: Mounted | None = None
        self._remote: Remote | None = None
        self._api: Api | None = None
        self._is_there = False

    @property
    def has_app(self) -> bool:
        """Whether the program's functions and handlers are here, so that letters can be replayed."""
        return self.program is not None

    @property
    def program(self) -> str | None:
        """Where the program is: module:attribute."""
        return self._source()[1]

    @property
    def has_program(self) -> bool:
        """Whether what needs the program's functions can be asked for: here, or of a server, which says so if not."""
        return self.remote is not None or self.has_app

    def hold(self, *, create: bool = False) -> Holdfast:
        """The Holdfast on the shared store. `create`: a SQLite file that is not there may be made.

        Raises WrongUsage for a store that is not shared, or none at all, and NoStore for a file that is not there.
        """
        if self._hold is None:
            url, app = self._source()
            remote = self.remote
            if remote is not None:
                self._hold = _elsewhere(remote)
            else:
                self._hold = _load(app) if app is not None else _open(url or "", create)
            refuse_memory(self._hold.store.url)
            click.get_current_context().call_on_close(self._hold.close)
        return self._hold

    @property
    def remote(self) -> Remote | None:
        """The server that the URL names; None where it is a store's, or the program's Holdfast is used."""
        url, app = self._source()
        if self._remote is None and app is None and is_remote(url or ""):
            self._remote = Remote(url or "", self._token())
        return self._remote

    @property
    def api(self) -> Api:
        """The API: of the server that the URL names, or in this process, on the store. Raises what `hold` raises."""
        if self._api is None:
            self._api = self.remote or self._here()
        return self._api

    def _here(self) -> Api:
        from holdfast.cli.filters import os_user
        from holdfast.cli.here import Here

        by: str | None = click.get_current_context().params.get("by")
        return Here(self.hold(), os_user() if by is None else by, has_program=self.has_app)

    @property
    def letters(self) -> Letters:
        """The dead letters of the shared store."""
        return self.hold().letters

    @property
    def breakers(self) -> Breakers:
        """The breaker states of the shared store."""
        return self.hold().breakers

    @property
    def outbox(self) -> Outbox:
        """The outbox of the shared database. Raises WrongUsage for a store that can have none."""
        return self._parts.outbox

    @property
    def sagas(self) -> Sagas:
        """The sagas of the shared database. Raises WrongUsage for a store that can have none."""
        return self._parts.sagas

    @property
    def audit(self) -> DatabaseAuditSink:
        """The audit trail of the shared database. Raises WrongUsage for a store that can have none."""
        return self._parts.audit

    @property
    def _parts(self) -> Works | Mounted:
        if self.prefix is None:
            return self.works
        if self.remote is not None:
            raise WrongUsage(f"--prefix needs the database itself: {self.remote.url} is a server")
        if self._mounted is None:
            from holdfast.cli.mounted import open_mounted

            self._mounted = open_mounted(self, self.prefix, audit_key())
        return self._mounted

    @property
    def workflows(self) -> Workflows:
        """The workflows of the shared store."""
        return self.hold().workflows

    @property
    def works(self) -> Works:
        """What the three share. Raises WrongUsage for a store that can have none of them."""
        url = self._source()[0]
        if url is not None and url.startswith("memory:"):
            raise WrongUsage(NEEDS_SQL.format(url))
        hold = self.hold()
        try:
            works = hold.works
        except ConfigurationError as error:
            raise WrongUsage(str(error)) from error
        if not self._is_there:
            hold.store.ping()  # a store that is away, or of another revision, says so best by itself
            self._is_there = True
        return works

    def now(self) -> datetime:
        """The store's time."""
        if self.prefix is not None:  # the database may have no other tables of Holdfast's
            return self.outbox.sessions.run(self.outbox.now, reads=True)
        return instant(self.hold().store.now())

    def where(self) -> str:
        """The store's URL: as it was given, or without its password where an app has it."""
        url, app = self._source()
        return self.hold().store.url if app is not None else url or ""

    def _token(self) -> str | None:
        """What says to a server who asks: of the file, or of the environment."""
        if self.token_file is None:
            return os.environ.get(TOKEN) or None
        try:
            return self.token_file.read_text(encoding="utf-8").strip()
        except (OSError, ValueError) as error:
            raise WrongUsage(f"cannot read the token from {self.token_file}: {error}") from error

    def _source(self) -> tuple[str | None, str | None]:
        """The URL or the app; the command line goes before the environment, and that before the file."""
        if self.url is not None and self.app is not None:
            raise WrongUsage("give --url or --app, not both: an app brings its own store")
        if self.url is not None or self.app is not None:
            return self.url, self.app
        app, url = os.environ.get("HOLDFAST_APP"), os.environ.get("HOLDFAST_URL")
        if not app and not url:
            file = settings()
            app, url = file.app, file.url
        if not app and not url:
            raise WrongUsage(ASK)
        return (None, app) if app else (url, None)


def _remember(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    if value and param.name is not None:
        setattr(ctx.ensure_object(Session), param.name, value)


def store_options(command: F) -> F:
    """The options that every command has, before or after its name."""
    for option in (
        click.option(
            "--debug", is_flag=True, expose_value=False, callback=_remember, help="Show the traceback of an error."
        ),
        click.option(
            "--app",
            metavar="MODULE:NAME",
            expose_value=False,
            callback=_remember,
            help="The program's Holdfast, or a function that makes it (HOLDFAST_APP).",
        ),
        click.option(
            "--token-file",
            metavar="FILE",
            type=click.Path(path_type=Path),
            expose_value=False,
            callback=_remember,
            help="The token for a server (HOLDFAST_TOKEN).",
        ),
        click.option(
            "--url",
            metavar="URL",
            expose_value=False,
            callback=_remember,
            help="The shared store, or a server: http://… (HOLDFAST_URL).",
        ),
    ):
        command = option(command)
    return command


def table_options(command: F) -> F:
    """Those, and what the names of the outbox's tables begin with."""
    prefix = click.option(
        "--prefix",
        metavar="PREFIX",
        expose_value=False,
        callback=_remember,
        help="What the names of the tables begin with, if not holdfast_.",
    )
    return prefix(store_options(command))


pass_session = click.make_pass_decorator(Session)


class InOrder(click.Group):
    """Lists its commands in the order in which they were added."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


def _load(app: str) -> Holdfast:
    """The Holdfast that `module:attribute` names."""
    from holdfast.app import Holdfast

    module, colon, path = app.partition(":")
    if not (module and colon and path):
        raise WrongUsage(f"--app must be module:attribute, got {app!r}; for instance shop.app:hold")
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found: Any = import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not (module == error.name or module.startswith(f"{error.name}.")):
            raise
        raise WrongUsage(f"there is no module {module!r} for --app {app}, seen from {here}") from None
    for name in path.split("."):
        if not hasattr(found, name):
            raise WrongUsage(f"{module} has no {path!r} for --app {app}")
        found = getattr(found, name)
    if callable(found) and not isinstance(found, Holdfast):
        found = found()
    if not isinstance(found, Holdfast):
        raise WrongUsage(f"--app {app} is a {type(found).__name__}; it must be a Holdfast or a function that makes one")
    return found


def _elsewhere(remote: Remote) -> Holdfast:
    from holdfast.cli.elsewhere.hold import RemoteHold

    return cast("Holdfast", RemoteHold(remote))  # what it has not got, it says


def _open(url: str, create: bool) -> Holdfast:
    from holdfast.app import Holdfast

    refuse_memory(url)
    file = sqlite_file(url)
    if file is not None and not create and not file.exists():
        raise NoStore(f"there is no database at {file}; your program makes it, or: holdfast db upgrade --url {url}")
    try:
        return Holdfast.from_settings(settings(), url=url)
    except ValueError as error:
        raise WrongUsage(str(error)) from error


def audit_key() -> bytes | None:
    """The key of the audit trail, where no program brings it along."""
    return settings().key


def settings() -> Settings:
    """Those of holdfast.toml and the environment. Raises WrongUsage for what they cannot be."""
    from holdfast.config import Settings

    try:
        return Settings.load()
    except (ConfigurationError, PolicyError) as error:
        raise WrongUsage(str(error)) from error


def refuse_memory(url: str) -> None:
    """Raises WrongUsage for a store that other processes cannot see."""
    parts = urlsplit(url)
    file = sqlite_file(url)
    if parts.scheme == "memory" or (parts.scheme.startswith("sqlite") and (file is None or file.name == ":memory:")):
        raise WrongUsage(ONE_PROCESS.format(url))


def sqlite_file(url: str) -> Path | None:
    """The file of a SQLite store; None for any other store, and for SQLite in memory."""
    parts = urlsplit(url)
    if not parts.scheme.startswith("sqlite") or not parts.path.strip("/"):
        return None
    return Path(unquote(parts.path[1:]))
