"""A private RabbitMQ from the machine's own `rabbitmq-server`, or the one of HOLDFAST_TEST_RABBITMQ_URL.

No package brings a RabbitMQ, so a machine without one leaves it out: `AVAILABLE` says so, and `REASON` why. Its port
mapper (epmd) is a private one as well, since Erlang would leave a shared one running for ever.
"""

from __future__ import annotations

import os
import shutil
from contextlib import closing
from functools import cache
from pathlib import Path
from socket import create_connection
from urllib.parse import urlsplit

from tests.services.private import PrivateServer, free_port

URL_VARIABLE = "HOLDFAST_TEST_RABBITMQ_URL"
REASON = f"no RabbitMQ: install Debian's rabbitmq-server, or set {URL_VARIABLE}"


def _program() -> str | None:
    # Debian's command of that name insists on the user rabbitmq and its folders; the program behind it does not.
    plain = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
    return str(plain) if plain.exists() else shutil.which("rabbitmq-server")


AVAILABLE = bool(os.environ.get(URL_VARIABLE) or _program())


class Server(PrivateServer):
    kind = "rabbitmq"
    url_variable = URL_VARIABLE
    patience_s = 90.0

    def __init__(self, url: str, folder: Path | None = None) -> None:
        super().__init__(url, folder)
        self._mapper_port = free_port()

    def start(self) -> None:
        folder, program = self._private(), _program()
        mapper = shutil.which("epmd")
        if program is None or mapper is None:
            raise RuntimeError(REASON)
        environment = self._environment(folder)
        self._launch(mapper, "-relaxed_command_check", environment=environment)
        self._launch(program, environment=environment)
        self._wait_until(self._answers)

    def _environment(self, folder: Path) -> dict[str, str]:
        nothing = folder / "none"
        nothing.touch()
        plugins = folder / "plugins"
        plugins.write_text("[].\n")
        own = {
            "HOME": str(folder),
            "ERL_EPMD_PORT": str(self._mapper_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": f"holdfast{urlsplit(self.url).port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(urlsplit(self.url).port),
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_MNESIA_BASE": str(folder / "data"),
            "RABBITMQ_LOG_BASE": str(folder / "logs"),
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_PID_FILE": str(folder / "pid"),
            "RABBITMQ_CONF_ENV_FILE": str(nothing),
            "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(plugins),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+S 1:1 +sbwt none",
        }
        return {**os.environ, **own}

    def _answers(self) -> bool:
        parts = urlsplit(self.url)
        try:
            with closing(create_connection((parts.hostname or "", parts.port or 0), timeout=2)) as link:
                link.sendall(b"AMQP\x00\x00\x09\x01")
                return link.recv(1) == b"\x01"
        except OSError:
            return False


@cache
def server() -> Server:
    """The one server of this test run."""
    if given := os.environ.get(URL_VARIABLE):
        return Server(given)
    return private_server()


def private_server() -> Server:
    """A server of a test's own, which it may stop."""
    if _program() is None:
        raise RuntimeError(REASON)
    started = Server(f"amqp://guest:guest@127.0.0.1:{free_port()}/", Server.new_folder())
    started.start()
    return started
