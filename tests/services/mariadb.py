"""A private MariaDB from the machine's own `mariadbd`, or the one of HOLDFAST_TEST_MARIADB_URL.

No package brings a MariaDB, so a machine without one leaves it out: `AVAILABLE` says so, and `REASON` why.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import uuid
from contextlib import closing
from functools import cache
from pathlib import Path
from urllib.parse import quote, urlsplit, urlunsplit

from tests.services.private import PrivateServer

URL_VARIABLE = "HOLDFAST_TEST_MARIADB_URL"
AVAILABLE = bool(os.environ.get(URL_VARIABLE) or shutil.which("mariadbd"))
REASON = f"no MariaDB: install mariadbd, or set {URL_VARIABLE}"


class Server(PrivateServer):
    kind = "mariadb"
    url_variable = URL_VARIABLE
    patience_s = 60.0

    def fresh_database(self) -> str:
        """The URL of a new, empty database."""
        name = f"holdfast_{uuid.uuid4().hex[:12]}"
        connection = _connect(self.url)
        connection.cursor().execute(f"CREATE DATABASE {name}")
        connection.close()
        return urlunsplit(urlsplit(self.url)._replace(path=f"/{name}"))

    def empty(self, url: str, *, keep: str) -> None:
        """Delete all rows of a database, but those of the table `keep`. In one statement: a test waits for it."""
        with closing(_connect(url)) as connection, connection.cursor() as cursor:
            connection.begin()
            cursor.execute(
                "BEGIN NOT ATOMIC FOR one IN (SELECT table_name AS name FROM information_schema.tables"
                f" WHERE table_schema = DATABASE() AND table_name <> '{keep}' ORDER BY table_name)"
                " DO EXECUTE IMMEDIATE CONCAT('DELETE FROM `', one.name, '`'); END FOR; END"
            )
            connection.commit()

    def start(self) -> None:
        folder = self._private()
        socket = f"--socket={folder / 'socket'}"
        # Tests kill processes and never the machine, so a commit need not wait for the disk.
        fast = "--innodb-flush-log-at-trx-commit=2"
        self._launch(_program("mariadbd"), *_options(folder), socket, "--skip-networking", fast)
        self._wait_until(self._answers)

    def _answers(self) -> bool:
        import pymysql  # here, so that whoever leaves MariaDB out need not have it

        try:
            _connect(self.url).close()
        except pymysql.err.OperationalError:
            return False
        return True


@cache
def server() -> Server:
    """The one server of this test run."""
    if given := os.environ.get(URL_VARIABLE):
        return Server(given)
    return private_server()


def private_server() -> Server:
    """A server of a test's own, which it may stop."""
    if shutil.which("mariadbd") is None:
        raise RuntimeError(REASON)
    folder = Server.new_folder()
    if os.getuid() == 0:
        shutil.chown(folder, "nobody", "nogroup")
    made = subprocess.run(
        [
            _program("mariadb-install-db"),
            *_options(folder),
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode != 0:
        raise RuntimeError(f"mariadb-install-db failed: {(made.stdout + made.stderr)[-2000:]}")
    socket = quote(str(folder / "socket"), safe="/")
    # Where it may encrypt, PyMySQL reads the machine's certificates for each connection: 35 ms, here for nothing.
    started = Server(f"mariadb+pymysql://root@localhost/mysql?unix_socket={socket}&ssl_disabled=true", folder)
    started.start()
    return started


def _options(folder: Path) -> list[str]:
    own = ["--no-defaults", f"--datadir={folder / 'data'}", f"--pid-file={folder / 'pid'}"]
    return [*own, "--user=nobody"] if os.getuid() == 0 else own


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise RuntimeError(f"{name} is not installed, though mariadbd is")
    return found


def _connect(url: str):  # type: ignore[no-untyped-def]  # PyMySQL has no types
    import pymysql
    from sqlalchemy import make_url

    parsed = make_url(url)
    return pymysql.connect(**parsed.translate_connect_args(username="user"), **parsed.query, autocommit=True)
