"""Publishing by signed HTTP requests: CloudEvents over HTTP, signed in the manner of Standard Webhooks."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any, Final

from holdfast.core.clock import SYSTEM_CLOCK, Clock
from holdfast.errors import MissingExtra, PolicyError, ResolverError
from holdfast.outbox.operation import SOONEST, RetryAfter
from holdfast.outbox.publishers.address import Reach, bounded, public_only, resolve
from holdfast.outbox.publishers.lazy import Lazy
from holdfast.outbox.publishers.signature import keys_of, sign
from holdfast.outbox.publishing import Message, Mode, PublishError
from holdfast.outbox.subject import utc
from holdfast.telemetry.causation import CAUSATION_HEADER

_AGAIN: Final = frozenset({408, 425, 429})
_TRACE: Final = frozenset({"traceparent", "tracestate", CAUSATION_HEADER})
_SHORT: Final = 65_536
_DRAIN_S: Final = 1.0


class WebhookFailed(PublishError):
    """The receiver could not take the message now; `status` is what it said."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status

    def __str__(self) -> str:
        return f"the receiver answered {self.status}"


class WebhookRefused(ResolverError):
    """The receiver will never take the message: it redirected or refused it with a status that no retry changes."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status

    def __str__(self) -> str:
        return f"the receiver answered {self.status}, which no retry changes"


class WebhookPublisher:
    """Posts each message to `url`. A 2xx takes it; 408, 425, 429 and 5xx are tried again, after `Retry-After` where it
    is given and at most `longest_wait`; everything else, redirects included, gives it up.

    `secrets` sign it; to change one, give the new and the old until the receiver knows the new. The structured form is
    signed as a whole; of the binary one the attributes in the headers are not. `reach` says which addresses may be
    called: without it public ones only, or those that the operator lists (HOLDFAST_WEBHOOK_REACH, or the settings of
    the Holdfast that it is registered with), beyond which nothing goes.
    `client` is an `httpx.AsyncClient` that stays the caller's to close.
    """

    def __init__(
        self,
        url: str,
        secrets: str | Sequence[str],
        *,
        name: str = "webhook",
        headers: Mapping[str, str] | None = None,
        reach: Reach | None = public_only,
        allow_http: bool = False,
        mode: Mode = "structured",
        timeout: float = 10.0,
        longest_wait: timedelta = timedelta(hours=1),
        client: Any = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._httpx = _httpx()
        self._url = self._checked(url, allow_http)
        keys_of(secrets)
        self.name = name
        self._secrets = secrets
        self._headers = dict(headers or {})
        self._asked = reach
        self._reach = bounded(reach)
        self._mode: Mode = mode
        self._timeout = timeout
        self._longest_wait = longest_wait
        self._given = client
        self._clock = clock
        self._lazy = Lazy(self._connect, self._end, lambda made: not made.is_closed)

    def confine(self, listed: Sequence[str]) -> None:
        """Go no further than what the operator lists. Called by whoever it is registered with."""
        self._reach = bounded(self._asked, listed)

    async def publish(self, message: Message) -> RetryAfter | None:
        """Raises AddressRefused for a host at an address that may not be called."""
        async with asyncio.timeout(self._timeout):
            response = await self._send(await self._lazy.get(), message)
        try:
            await _drain(response)
        finally:
            await response.aclose()
        return self._judge(response)

    async def close(self) -> None:
        await self._lazy.close()

    async def _send(self, client: Any, message: Message) -> Any:
        headers, body = self._signed(message)
        if self._reach is None:
            return await self._post(client, self._url, headers, body)
        host, port = self._url.host, self._url.port or (443 if self._url.scheme == "https" else 80)
        headers["host"] = self._url.netloc.decode()
        failure: Exception | None = None
        for address in await resolve(host, port, self._reach):
            try:
                # The certificate must still be the name's.
                pinned = self._url.copy_with(host=str(address))
                return await self._post(client, pinned, headers, body, extensions={"sni_hostname": host})
            except self._httpx.ConnectError as error:
                failure = error
        raise failure or PublishError(f"the host {host!r} has no address")

    def _signed(self, message: Message) -> tuple[dict[str, str], bytes]:
        attributes, kind, body = message.form(self._mode)
        # Of the entry's own headers only these: what a request carried may hold cookies and credentials.
        kept = {name: text for name, text in attributes.items() if name in _TRACE or name.startswith("ce-")}
        signed = sign(message.id, self._clock.wall(), body, self._secrets)
        return {**self._headers, **kept, "content-type": kind, **signed}, body

    async def _post(self, client: Any, url: Any, headers: dict[str, str], body: bytes, **more: Any) -> Any:
        request = client.build_request("POST", url, content=body, headers=headers, timeout=self._timeout, **more)
        return await client.send(request, stream=True, follow_redirects=False)

    def _judge(self, response: Any) -> RetryAfter | None:
        status = response.status_code
        if 200 <= status < 300:
            return None
        if status not in _AGAIN and status < 500:
            raise WebhookRefused(status)
        wait = _wait(response.headers.get("retry-after"), self._clock.wall())
        if wait is None:
            raise WebhookFailed(status)
        return RetryAfter(min(max(wait, SOONEST), self._longest_wait), f"Webhook{status}")

    def _checked(self, url: str, allow_http: bool) -> Any:
        parsed = self._httpx.URL(url)
        if parsed.scheme not in ("https", "http") or not parsed.host:
            raise PolicyError(f"WebhookPublisher.url must be an http(s) URL with a host, got {url!r}")
        if parsed.scheme == "http" and not allow_http:
            raise PolicyError(f"WebhookPublisher.url must be https, got {url!r}; allow_http=True sends it unencrypted")
        return parsed

    async def _connect(self) -> Any:
        if self._given is not None:
            return self._given
        # A proxy of the environment's would look the name up itself, unchecked.
        return self._httpx.AsyncClient(trust_env=False, follow_redirects=False)

    async def _end(self, client: Any) -> None:
        if self._given is None:
            await client.aclose()


async def _drain(response: Any) -> None:
    """Read a short answer, so that the connection can be used again; what it says does not matter."""
    size = "0" if response.status_code == 204 else response.headers.get("content-length", "")
    if not size.isdecimal() or int(size) > _SHORT:
        return
    try:
        async with asyncio.timeout(_DRAIN_S):
            await response.aread()
    except (_httpx().HTTPError, TimeoutError):
        pass  # the status has been said


def _wait(text: str | None, now: datetime) -> timedelta | None:
    """How long `Retry-After` says to wait: seconds, or a date."""
    if text is None:
        return None
    if text.strip().isdecimal():
        return timedelta(seconds=min(int(text.strip()), 10**9))
    try:
        return utc(parsedate_to_datetime(text)) - now
    except ValueError:
        return None


def _httpx() -> Any:
    try:
        import httpx
    except ImportError as error:
        raise MissingExtra("webhooks need httpx; run: pip install 'holdfast[httpx]'") from error
    return httpx
