"""The floor on Redis: each row as one command of redis-py, a script (EVALSHA) where there is something to decide.

A letter is a hash; the same indexes as ours are sorted sets by time, and the same counters are hashes. The scripts know
the fields and the states of a letter, do only what their row needs, and answer with the raw hash.
"""

import json
from collections.abc import Callable
from itertools import count
from time import time_ns
from typing import Any

import redis

import holdfast as hf
from benchmarks.store.measure import Task
from benchmarks.store.ours import failing
from benchmarks.store.setup import CAP, CLAIMED, READ, SERVICE, Setup, letter, taken

HOUR = 3_600_000_000
DONE = (b"resolved", b"rejected", b"archived")
BODY = ("error_code", "error_message", "request_data", "user_id", "metadata")
CREATE = """
local id, at, domain, kind, entity = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
redis.call('HSET', 'l:' .. id, 'v', 1, 'status', 'pending', 'created', at, 'updated', at, 'retries', 0, 'cap', 2,
  'after', 0, 'domain', domain, 'kind', kind, 'attempts', 0, 'history', '', 'body', ARGV[7])
redis.call('ZADD', 'i:created', at, id)
redis.call('ZADD', 'i:status:pending', at, id)
redis.call('ZADD', 'i:domain:' .. domain, at, id)
redis.call('ZADD', 'i:both:' .. domain .. ',pending', at, id)
redis.call('ZADD', 'i:entity:' .. entity, at, id)
redis.call('ZADD', 'i:due:' .. domain, at, id)
redis.call('HINCRBY', 'tally', 'pending,' .. domain .. ',' .. kind, 1)
redis.call('HINCRBY', 'arrivals', domain .. ',' .. ARGV[6], 1)
return id
"""
MOVE = """
local function move(id, created, domain, kind, from, to)
  redis.call('ZREM', 'i:status:' .. from, id)
  redis.call('ZADD', 'i:status:' .. to, created, id)
  redis.call('ZREM', 'i:both:' .. domain .. ',' .. from, id)
  redis.call('ZADD', 'i:both:' .. domain .. ',' .. to, created, id)
  local rest = ',' .. domain .. ',' .. kind
  if redis.call('HINCRBY', 'tally', from .. rest, -1) == 0 then redis.call('HDEL', 'tally', from .. rest) end
  redis.call('HINCRBY', 'tally', to .. rest, 1)
end
"""
BEGIN = (
    MOVE
    + """
local function begin(id, at, cap, token)
  local key = 'l:' .. id
  local f = redis.call('HMGET', key, 'status', 'retries', 'after', 'cap', 'created', 'domain', 'kind', 'v', 'attempts')
  if f[1] ~= 'pending' or tonumber(f[2]) >= cap or tonumber(f[3]) > tonumber(at) then return nil end
  redis.call('HSET', key, 'v', f[8] + 1, 'status', 'replaying', 'retries', f[2] + 1, 'attempts', f[9] + 1,
    'updated', at, 'token', token, 'attempt_cap', math.min(cap, tonumber(f[4])), 'started', at, 'retried', at,
    'heartbeat', at)
  move(id, f[5], f[6], f[7], 'pending', 'replaying')
  redis.call('ZREM', 'i:due:' .. f[6], id)
  redis.call('ZADD', 'i:touched', at, id)
  return redis.call('HGETALL', key)
end
"""
)
ACQUIRE = BEGIN + "return begin(ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4])"
CLAIM = (
    BEGIN
    + """
local found = {}
for _, id in ipairs(redis.call('ZRANGEBYSCORE', 'i:due:' .. ARGV[1], '-inf', ARGV[2], 'LIMIT', 0, 100)) do
  found[#found + 1] = begin(id, ARGV[2], tonumber(ARGV[3]), ARGV[4] .. id)
end
return found
"""
)
GIVE_BACK = (
    MOVE
    + """
for _, id in ipairs(redis.call('ZRANGE', 'i:both:' .. ARGV[1] .. ',replaying', 0, -1)) do
  local key = 'l:' .. id
  local f = redis.call('HMGET', key, 'created', 'kind')
  redis.call('HSET', key, 'status', 'pending', 'retries', 0, 'attempts', 0)
  redis.call('HDEL', key, 'token', 'attempt_cap', 'started', 'retried', 'heartbeat')
  move(id, f[1], ARGV[1], f[2], 'replaying', 'pending')
  redis.call('ZREM', 'i:touched', id)
  redis.call('ZADD', 'i:due:' .. ARGV[1], 1, id)
end
"""
)
COMPLETE = (
    MOVE
    + """
local id, at = ARGV[1], ARGV[2]
local key = 'l:' .. id
local f = redis.call('HMGET', key,
  'status', 'token', 'created', 'domain', 'kind', 'v', 'attempts', 'history', 'started')
if f[1] ~= 'replaying' or f[2] ~= ARGV[3] then return 0 end
local closed = '{"number":' .. f[7] .. ',"token":"' .. f[2] .. '","started_at":' .. f[9] .. ',"finished_at":' .. at ..
  ',"outcome":"succeeded","trigger":"","error_type":"","note":"","details":{}}'
redis.call('HSET', key, 'v', f[6] + 1, 'status', 'resolved', 'updated', at, 'resolved', at, 'by', 'manual_replay',
  'history', f[8] == '' and closed or f[8] .. ',' .. closed)
redis.call('HDEL', key, 'token', 'attempt_cap', 'started', 'heartbeat')
move(id, f[3], f[4], f[5], 'replaying', 'resolved')
redis.call('ZREM', 'i:touched', id)
redis.call('ZADD', 'i:aged:resolved', at, id)
return 1
"""
)
PAGE = """
local found = {}
for _, id in ipairs(redis.call('ZREVRANGE', 'i:both:' .. ARGV[1] .. ',pending', 0, 49)) do
  found[#found + 1] = redis.call('HGETALL', 'l:' .. id)
end
return found
"""
FAILURE = """
redis.call('HINCRBY', 'b:' .. ARGV[1], 'failures', 1)
redis.call('HSET', 'b:' .. ARGV[1], 'failed', ARGV[2], 'updated', ARGV[2])
return redis.call('HGETALL', 'b:' .. ARGV[1])
"""
SUCCESS = """
local key = 'b:' .. ARGV[1]
local number = redis.call('HINCRBY', key, 'successes', 1)
redis.call('HSET', key, 'updated', ARGV[2])
if number >= tonumber(ARGV[3]) and redis.call('HGET', key, 'state') == 'half_open' then
  redis.call('HSET', key, 'state', 'closed', 'successes', 0, 'failures', 0, 'trials', 0)
  redis.call('HDEL', key, 'opened', 'window')
end
return redis.call('HGETALL', key)
"""
SLOT = """
local key = 'b:' .. ARGV[1]
local f = redis.call('HMGET', key, 'state', 'trials', 'window', 'pinned')
if f[1] ~= 'half_open' or f[4] or tonumber(f[2]) >= tonumber(ARGV[3]) then return 0 end
redis.call('HSET', key, 'trials', f[2] + 1, 'updated', ARGV[2], 'window', f[3] or ARGV[2])
return 1
"""


def now() -> int:
    return time_ns() // 1000


class RedisFloor:
    label = "floor"

    def __init__(self, setup: Setup, store: str) -> None:
        self._setup = setup
        self._acquired, self._completed = taken(store)
        self._client = redis.Redis.from_url(setup.url(store, "floor"))
        self._serial = count()
        self._digests: dict[str, str] = {}
        if not self._client.exists("tally"):
            self._fill(setup.letters)
            for group in self._client.hkeys("tally"):  # as many kinds to count as in our own places
                for status in ("resolved", "archived"):
                    self._client.hincrby("tally", f"{status},{group.decode().partition(',')[2]}", 5)

    def _script(self, text: str) -> Callable[..., Any]:
        digest = self._digests.setdefault(text, str(self._client.script_load(text)))
        evalsha = self._client.evalsha
        return lambda *values: evalsha(digest, 0, *values)

    def _create(self, script: Callable[..., Any]) -> Callable[[dict[str, Any]], Any]:
        serial = self._serial

        def create(fields: dict[str, Any]) -> Any:
            at = now()
            body = {name: fields[name] for name in BODY}
            return script(
                f"{at:014x}{next(serial):010x}", at, fields["domain"], fields["failure_type"], fields["entity_id"],
                at // HOUR, json.dumps(body),
            )  # fmt: skip

        return create

    def _fill(self, letters: int, domain: str | None = None) -> None:
        digest = self._client.script_load(CREATE)
        for start in range(0, letters, 1000):
            with self._client.pipeline(transaction=False) as pipeline:
                create = self._create(lambda *values, to=pipeline: to.evalsha(digest, 0, *values))
                for number in range(start, min(start + 1000, letters)):
                    create(letter(number, domain))
                pipeline.execute()

    def create(self) -> Task:
        return Task(self._create(self._script(CREATE)), lambda number: [letter(10**9 + at) for at in range(number)])

    def get(self) -> Task:
        ids = [f"l:{id.decode()}" for id in self._client.zrevrange(f"i:domain:{READ}", 0, 999)]
        return Task(self._client.hgetall, lambda number: (ids * (number // len(ids) + 1))[:number], bool)

    def _pending(self, domain: str, number: int) -> list[str]:
        missing = number - self._client.zcard(f"i:due:{domain}")
        if missing > 0:
            self._fill(missing, domain)
        return [id.decode() for id in self._client.zrange(f"i:due:{domain}", 0, number - 1)]

    def acquire(self) -> Task:
        script, serial = self._script(ACQUIRE), self._serial

        def acquire(id: str) -> Any:
            at = now()
            return script(id, at, CAP, f"{at:014x}{next(serial):010x}")

        return Task(acquire, lambda number: self._pending(self._acquired, number))

    acquire_by_id = acquire

    def complete(self) -> Task:
        script, begin = self._script(COMPLETE), self._script(ACQUIRE)

        def prepare(number: int) -> list[str]:
            ids = self._pending(self._completed, number)
            for id in ids:
                begin(id, now(), CAP, f"token-{id}")
            return ids

        return Task(lambda id: script(id, now(), f"token-{id}"), prepare, lambda done: done == 1)

    complete_by_id = complete

    def claim(self) -> Task:
        script, give_back, serial = self._script(CLAIM), self._script(GIVE_BACK), self._serial

        def prepare(number: int) -> list[None]:
            give_back(CLAIMED)
            self._pending(CLAIMED, number * 100)
            return [None] * number

        def claim(_: None) -> Any:
            return script(CLAIMED, now(), CAP, f"{next(serial):x}-")

        return Task(claim, prepare, lambda claimed: len(claimed) == 100)

    def page(self) -> Task:
        script = self._script(PAGE)
        return Task(lambda _: script(READ), proof=lambda found: len(found) == 50)

    def facets(self) -> Task:
        counters = self._client.hgetall

        def facets(_: None) -> tuple[dict[bytes, int], dict[bytes, int]]:
            by_status: dict[bytes, int] = {}
            by_domain: dict[bytes, int] = {}
            for group, number in counters("tally").items():
                status, domain, _kind = group.split(b",")
                by_status[status] = by_status.get(status, 0) + int(number)
                by_domain[domain] = by_domain.get(domain, 0) + int(number)
            return by_status, by_domain

        return Task(facets, proof=lambda found: sum(found[1].values()) >= self._setup.letters)

    def statistics(self) -> Task:
        return Task(lambda _: self._client.hgetall("tally"), proof=bool)

    def count(self) -> Task:
        counters = self._client.hgetall

        def count_all(_: None) -> int:
            return sum(int(number) for group, number in counters("tally").items() if not group.startswith(DONE))

        return Task(count_all, proof=lambda number: number > self._setup.letters // 2)

    def failure(self) -> Task:
        script = self._half_open(FAILURE)
        return Task(lambda _: script(SERVICE, now()))

    def success(self) -> Task:
        script = self._half_open(SUCCESS)
        return Task(lambda _: script(SERVICE, now(), 10**9))

    def slot(self) -> Task:
        script = self._half_open(SLOT)
        return Task(lambda _: script(SERVICE, now(), 10**9), proof=lambda taken: taken == 1)

    def _half_open(self, text: str) -> Callable[..., Any]:
        self._client.hset(f"b:{SERVICE}", mapping={"state": "half_open", "trials": 0, "successes": 0, "failures": 0})
        return self._script(text)

    def capture(self) -> Task:
        create, fields = self._create(self._script(CREATE)), letter(7)
        return failing(hf.Guard("capture-floor", telemetry=hf.Hub()), lambda: create(fields))
