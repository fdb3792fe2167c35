"""The five guarded clients behind one face, so that a rule is tested once and holds everywhere."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextvars import copy_context
from typing import Any

import httpx
import httpx2
import requests

from holdfast.guard.guard import Guard
from holdfast.integrations import httpx as for_httpx
from holdfast.integrations import httpx2 as for_httpx2
from holdfast.integrations import requests as for_requests

LIBRARIES: dict[str, tuple[Any, Any]] = {"httpx": (httpx, for_httpx), "httpx2": (httpx2, for_httpx2)}


class Answer:
    def __init__(self, status: int, body: bytes, headers: Mapping[str, str], url: str) -> None:
        self.status = status
        self.body = body
        self.headers = headers
        self.url = url


class Client:
    """`lent` counts the connections that somebody holds, `kept` those that wait in a pool to be used again."""

    connect_errors: tuple[type[Exception], ...]
    network_errors: tuple[type[Exception], ...]
    is_async = False

    def request(self, method: str, url: str, *, content: Any = None, **options: Any) -> Answer:
        raise NotImplementedError

    def get(self, url: str, **options: Any) -> Answer:
        return self.request("GET", url, **options)

    def post(self, url: str, content: Any = b"x", **options: Any) -> Answer:
        return self.request("POST", url, content=content, **options)

    def body_once(self, *parts: bytes) -> Any:
        """A request body that can be sent only once."""
        return (part for part in parts)

    @property
    def lent(self) -> int:
        raise NotImplementedError

    @property
    def kept(self) -> int:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError


class HttpxClient(Client):
    def __init__(self, library: str, guard: Guard, **options: Any) -> None:
        self.library, integration = LIBRARIES[library]
        self.connect_errors = (self.library.ConnectError,)
        self.network_errors = (self.library.TransportError,)
        self.transport = self._transport(integration)(guard, **options)
        self.client = self._client()(transport=self.transport, timeout=5)

    def _transport(self, integration: Any) -> Any:
        return integration.GuardTransport

    def _client(self) -> Any:
        return self.library.Client

    def request(self, method: str, url: str, *, content: Any = None, **options: Any) -> Answer:
        return self._answer(self.client.request(method, url, content=content, **options))

    def _answer(self, response: Any) -> Answer:
        return Answer(response.status_code, response.content, response.headers, str(response.url))

    @property
    def _connections(self) -> list[Any]:
        return [one for transport in self.transport.transports for one in transport._pool.connections]

    @property
    def lent(self) -> int:
        return sum(not one.is_idle() for one in self._connections)

    @property
    def kept(self) -> int:
        return sum(one.is_idle() and not one.is_closed() for one in self._connections)

    def close(self) -> None:
        self.client.close()


class AsyncHttpxClient(HttpxClient):
    is_async = True

    def __init__(self, library: str, guard: Guard, **options: Any) -> None:
        self.runner = asyncio.Runner()
        super().__init__(library, guard, **options)

    def _transport(self, integration: Any) -> Any:
        return integration.AsyncGuardTransport

    def _client(self) -> Any:
        return self.library.AsyncClient

    def request(self, method: str, url: str, *, content: Any = None, **options: Any) -> Answer:
        work = self.client.request(method, url, content=content, **options)
        # A runner has a context of its own; the test's holds its overrides and deadlines.
        return self._answer(self.runner.run(work, context=copy_context()))

    def body_once(self, *parts: bytes) -> Any:
        async def body() -> Any:
            for part in parts:
                yield part

        return body()

    def close(self) -> None:
        self.runner.run(self.client.aclose())
        self.runner.close()


class RequestsClient(Client):
    connect_errors = (requests.ConnectionError,)
    network_errors = (requests.ConnectionError, requests.exceptions.ChunkedEncodingError)

    def __init__(self, guard: Guard, **options: Any) -> None:
        self.adapter = for_requests.GuardAdapter(guard, **options)
        self.session = requests.Session()
        self.session.trust_env = False
        self.session.mount("http://", self.adapter)
        self.session.mount("https://", self.adapter)

    def request(self, method: str, url: str, *, content: Any = None, **options: Any) -> Answer:
        options.setdefault("timeout", 5)
        response = self.session.request(method, url, data=content, **options)
        return Answer(response.status_code, response.content, response.headers, response.url)

    @property
    def _pools(self) -> list[Any]:
        managers = (self.adapter.poolmanager, *self.adapter.proxy_manager.values())
        return [manager.pools[key] for manager in managers for key in manager.pools.keys()]  # noqa: SIM118

    @property
    def lent(self) -> int:
        return sum(pool.pool.maxsize - pool.pool.qsize() for pool in self._pools)

    @property
    def kept(self) -> int:
        return sum(one is not None and not one.is_closed for pool in self._pools for one in list(pool.pool.queue))

    def close(self) -> None:
        self.session.close()


CLIENTS: dict[str, Any] = {
    "httpx": lambda guard, **options: HttpxClient("httpx", guard, **options),
    "httpx-async": lambda guard, **options: AsyncHttpxClient("httpx", guard, **options),
    "httpx2": lambda guard, **options: HttpxClient("httpx2", guard, **options),
    "httpx2-async": lambda guard, **options: AsyncHttpxClient("httpx2", guard, **options),
    "requests": RequestsClient,
}
