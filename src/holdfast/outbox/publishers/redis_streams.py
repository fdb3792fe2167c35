"""Publishing to Redis Streams. Redis does not know repeated messages, so a key per message remembers it for a while."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

from holdfast.errors import MissingExtra, PolicyError
from holdfast.outbox.publishers.lazy import Lazy
from holdfast.outbox.publishing import Message, Mode

PREFIX: Final = "ce_"
DATA: Final = "data"
CONTENT_TYPE: Final = "content-type"

# The key comes last: a message that Redis has no room for must not count as sent.
_ADD: Final = """
local known = redis.call('GET', KEYS[2])
if known then return known end
local words = {'XADD', KEYS[1]}
if ARGV[2] ~= '' then
    words[#words + 1] = 'MAXLEN'
    words[#words + 1] = '~'
    words[#words + 1] = ARGV[2]
end
words[#words + 1] = '*'
for at = 3, #ARGV do words[#words + 1] = ARGV[at] end
local id = redis.call(unpack(words))
redis.call('SET', KEYS[2], id, 'PX', ARGV[1])
return id
"""


class RedisStreamsPublisher:
    """The topic is the key of the stream. An entry has the field `data` and, in the binary form, a field `ce_…` per
    attribute.

    `server` is a URL or a client of `redis.asyncio`, which stays the caller's to close. A message that comes again
    within `window` is not added again. With `max_length`, about so many entries of a stream are kept. `options` go to
    `Redis.from_url`.
    """

    def __init__(
        self,
        server: Any,
        *,
        name: str = "redis",
        window: timedelta = timedelta(days=1),
        max_length: int | None = None,
        mode: Mode = "binary",
        timeout: float = 5.0,
        **options: Any,
    ) -> None:
        if window < timedelta(milliseconds=1):
            raise PolicyError(f"RedisStreamsPublisher.window must be above 0, got {window}")
        if max_length is not None and max_length < 1:
            raise PolicyError(f"RedisStreamsPublisher.max_length must be at least 1, got {max_length}; use None")
        self._client = _client()
        self.name = name
        self._window = str(window // timedelta(milliseconds=1))
        self._max_length = "" if max_length is None else str(max_length)
        self._mode: Mode = mode
        self._server = server
        self._options = {"socket_timeout": timeout, "socket_connect_timeout": timeout, **options}
        self._lazy = Lazy(self._connect, self._end)

    async def publish(self, message: Message) -> None:
        _, add = await self._lazy.get()
        headers, kind, body = message.form(self._mode, prefix=PREFIX, quoted=False)
        fields: dict[str, str | bytes] = {**headers, PREFIX + "id": message.id, CONTENT_TYPE: kind, DATA: body}
        flat = [part for pair in fields.items() for part in pair]
        seen = f"{_same_slot(message.topic)}:published:{message.id}"
        await add(keys=[message.topic, seen], args=[self._window, self._max_length, *flat])

    async def close(self) -> None:
        await self._lazy.close()

    async def _connect(self) -> tuple[Any, Any]:
        mine = isinstance(self._server, str)
        client = self._client.from_url(self._server, **self._options) if mine else self._server
        return client, client.register_script(_ADD)

    async def _end(self, made: tuple[Any, Any]) -> None:
        if isinstance(self._server, str):
            await made[0].aclose()


def _same_slot(key: str) -> str:
    """The beginning of a key that a cluster keeps together with this one."""
    _, opened, rest = key.partition("{")
    tag, closed, _ = rest.partition("}")
    return key if opened and closed and tag else f"{{{key}}}"


def _client() -> Any:
    try:
        from redis.asyncio import Redis
    except ImportError as error:
        raise MissingExtra("publishing to Redis needs redis-py; run: pip install 'holdfast[redis]'") from error
    return Redis
