"""`serve(hold)`: the API and the console, until somebody stops it.

By default only this machine can reach it. Another address is refused unless there is somebody who can sign in.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from holdfast.access.serving import ServerPolicy
from holdfast.core.addresses import is_loopback
from holdfast.core.collector import as_before, relieve
from holdfast.errors import ConfigurationError, MissingExtra

if TYPE_CHECKING:
    import uvicorn

    from holdfast.app import Holdfast
    from holdfast.server.api import Authorize
    from holdfast.server.identity import Identify
    from holdfast.server.shields import Limits

HOST: Final = ServerPolicy().host
PORT: Final = ServerPolicy().port
_GRACE_S: Final = 5


def serve(
    hold: Holdfast,
    *,
    host: str | None = None,
    port: int | None = None,
    required: bool | None = None,
    identify: Identify | None = None,
    authorize: Authorize | None = None,
    hosts: Sequence[str] | None = None,
    https: bool | None = None,
    limits: Limits | None = None,
    has_program: bool = True,
    told: Callable[[str], object] = lambda url: None,
) -> None:
    """Serve until SIGINT or SIGTERM; `told` gets the address once it can be asked.

    What is not given is as the settings of the Holdfast say, else on 127.0.0.1:8400 for this machine alone. Port 0
    takes a free one. Meanwhile the garbage collector leaves alone what was there when it began, and comes less often.
    Raises ConfigurationError for an address that others can reach while nobody can sign in, and for one that is taken.
    """
    usual = hold.serving
    listening = listen(usual.host if host is None else host, usual.port if port is None else port)

    def is_up(url: str) -> None:
        relieve()  # a full collection of all that a server has loaded, 170,000 objects, takes 0.1 s without an answer
        told(url)

    try:
        with as_before():
            server(
                hold, listening, required=required, identify=identify, authorize=authorize, hosts=hosts, https=https,
                limits=limits, has_program=has_program, told=is_up,
            ).run(sockets=[listening])  # fmt: skip
    finally:
        listening.close()


def server(
    hold: Holdfast,
    listening: socket.socket,
    *,
    required: bool | None = None,
    identify: Identify | None = None,
    authorize: Authorize | None = None,
    hosts: Sequence[str] | None = None,
    https: bool | None = None,
    limits: Limits | None = None,
    has_program: bool = True,
    told: Callable[[str], object] = lambda url: None,
) -> uvicorn.Server:
    """A server for a socket that listens already; `run(sockets=[…])` it. The options are those of `create_app`."""
    try:
        import uvicorn

        from holdfast.server.api import create_app
        from holdfast.server.wire import protocol
    except ModuleNotFoundError as error:
        raise MissingExtra(f"{error}; run: pip install 'holdfast[server]'") from error
    usual = hold.serving
    required = usual.required if required is None else required
    hosts = usual.hosts if hosts is None else hosts
    address = listening.getsockname()
    if not is_loopback(address[0]) and required is not True and not hold.access.has_accounts:
        raise ConfigurationError(
            f"{address[0]} can be reached by others, and nobody could be asked to sign in; make a user first: "
            "holdfast access add-user NAME --role admin, or listen on 127.0.0.1"
        )
    needs = True if not is_loopback(address[0]) else required
    own = urlsplit(url_of(listening)).netloc
    app = create_app(
        hold, required=needs, identify=identify, authorize=authorize, hosts=(*hosts, own), https=https,
        limits=limits, has_program=has_program,
    )  # fmt: skip
    config = uvicorn.Config(
        app, http=protocol(), log_level="warning", access_log=False, server_header=False, date_header=False,
        timeout_graceful_shutdown=_GRACE_S, proxy_headers=False,
    )  # fmt: skip

    class Telling(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            if self.started:
                told(url_of(listening))

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            app.state.live.close()  # streams would otherwise hold the shutdown up
            await super().shutdown(sockets)

    return Telling(config)


def listen(host: str = HOST, port: int = PORT) -> socket.socket:
    """A socket that listens. Raises ConfigurationError where that cannot be."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        made = socket.create_server(address[:2], family=family)
        # asyncio does so only for sockets that were made for TCP by name; without it an answer that is sent in two
        # parts waits for the client to acknowledge the first, which clients put off for 40 ms.
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except (OSError, OverflowError) as error:
        raise ConfigurationError(f"cannot listen on {host}:{port}: {error}; choose another with --port") from error
    return made


def url_of(listening: socket.socket) -> str:
    """The address to type into a browser."""
    host, port = listening.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"
