"""Time limits over HTTP: what is left reaches the sockets, and nothing outlives the total timeout."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from urllib3.util import Timeout as UrllibTimeout

from holdfast.core.clock import SYSTEM_CLOCK
from holdfast.core.context import deadline
from holdfast.errors import DeadlineExpired, GuardTimeout
from holdfast.guard.timeout import Timeout
from holdfast.integrations.requests import _clamped
from holdfast.machine.retry import Retry
from holdfast.telemetry.events import AttemptCompleted
from tests.integrations.clients import CLIENTS, LIBRARIES
from tests.integrations.servers import PATIENCE_S, Broken, Hang, Reply, Stalled

ASYNC = ["httpx-async", "httpx2-async"]
SYNC_HTTPX = ["httpx", "httpx2"]
BIG = b"x" * 100_000


class Late(Reply):
    """An answer that takes `seconds` of the manual clock."""

    def __init__(self, clock, seconds, body=b"late"):
        super().__init__(200, body)
        self.clock = clock
        self.seconds = seconds

    def play(self, handler):
        self.clock.advance(self.seconds)
        super().play(handler)


class Held(Reply):
    """An answer that comes when the test allows it."""

    def __init__(self):
        super().__init__(200, BIG)
        self.reached = threading.Event()
        self.go_on = threading.Event()

    def play(self, handler):
        self.reached.set()
        self.go_on.wait(PATIENCE_S)
        super().play(handler)


@pytest.fixture
def client():
    """One client, of the kind that the test names."""
    made = []

    def make(kind, guard, **options):
        made.append(CLIENTS[kind](guard, **options))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_a_server_that_says_nothing_cannot_outlast_the_total_timeout(server, client_of, guard_of):
    server.script(Hang(), Hang(), Hang())
    guard = guard_of(Retry(attempts=3, base=0.01), Timeout(total=0.2), clock=SYSTEM_CLOCK)
    started = SYSTEM_CLOCK.monotonic()
    with pytest.raises(GuardTimeout):
        client_of(guard).get(server.url())
    assert 0.15 < SYSTEM_CLOCK.monotonic() - started < 2


def test_an_attempt_that_times_out_is_retried_within_the_total(server, client_of, guard_of, recorder):
    server.script(Hang(), Reply(200, b"second"))
    guard = guard_of(Retry(attempts=3, base=0.001), Timeout(total=5, attempt=0.1), clock=SYSTEM_CLOCK)
    client = client_of(guard)
    assert client.get(server.url()).body == b"second"
    assert [event.outcome for event in recorder.of(AttemptCompleted)] == ["timeout", "success"]
    assert client.lent == 0


def test_a_wait_that_the_total_forbids_is_not_begun_and_its_response_is_closed(server, client_of, guard_of, clock):
    server.script(Reply(503, BIG, {"Retry-After": "60"}))
    client = client_of(guard_of(Retry(attempts=3), Timeout(total=10)))
    with pytest.raises(GuardTimeout, match="does not allow another attempt"):
        client.get(server.url())
    assert clock.slept == []
    assert client.lent == 0


def test_a_callers_deadline_that_forbids_the_wait_leaves_him_the_response(server, client_of, guard_of, clock):
    server.script(Reply(503, b"no", {"Retry-After": "60"}))
    client = client_of(guard_of(Retry(attempts=3)))
    with deadline(10, clock=clock):
        answer = client.get(server.url())
    assert (answer.status, answer.body, len(server.requests)) == (503, b"no", 1)


def test_nothing_is_sent_after_the_callers_deadline(server, client_of, guard_of, clock):
    client = client_of(guard_of(Retry(attempts=3)))
    with deadline(0, clock=clock), pytest.raises(DeadlineExpired):
        client.get(server.url())
    assert server.requests == []


def test_a_sync_response_that_comes_too_late_is_a_timeout_and_is_closed(server, client, guard_of, clock):
    for kind in ("httpx", "httpx2", "requests"):
        server.script(Late(clock, 20, BIG))
        late = client(kind, guard_of(Timeout(total=10)))
        with pytest.raises(GuardTimeout, match="late"):
            late.get(server.url())
        assert late.lent == 0


@pytest.mark.parametrize("kind", ["httpx", "httpx2", "requests"])
def test_a_response_for_a_caller_who_walked_away_is_closed(server, client, guard_of, clock, kind):
    held = Held()
    server.script(held)
    abandoned = client(kind, guard_of(Timeout(total=10, abandon=True)))
    with ThreadPoolExecutor(1) as thread:
        caller = thread.submit(abandoned.get, server.url())
        assert held.reached.wait(PATIENCE_S)
        clock.advance(10)
        with pytest.raises(GuardTimeout):
            caller.result(PATIENCE_S)
    assert abandoned.lent == 1
    held.go_on.set()
    pause = threading.Event()
    for _ in range(400):
        if abandoned.lent == 0:
            break
        pause.wait(0.01)
    assert abandoned.lent == 0


@pytest.mark.parametrize("kind", ASYNC)
def test_an_async_request_is_cut_when_its_time_is_over(server, client, guard_of, clock, kind):
    hang = Hang()
    server.script(hang)
    cut = client(kind, guard_of(Retry(attempts=3), Timeout(total=10)))

    async def scene():
        task = asyncio.ensure_future(cut.client.get(server.url()))
        await asyncio.to_thread(hang.reached.wait, PATIENCE_S)
        await clock.advance_async(10)
        with pytest.raises(GuardTimeout, match="the total time ran out"):
            await task

    cut.runner.run(scene())
    assert cut.lent == 0


@pytest.mark.parametrize("kind", ASYNC)
def test_a_cancelled_request_gives_its_connection_back(server, client, guard_of, recorder, kind):
    hang = Hang()
    server.script(hang)
    cancelled = client(kind, guard_of(Retry(attempts=3)))

    async def scene():
        task = asyncio.ensure_future(cancelled.client.get(server.url()))
        await asyncio.to_thread(hang.reached.wait, PATIENCE_S)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    cancelled.runner.run(scene())
    assert cancelled.lent == 0
    assert recorder.names().count("CallInterrupted") == 1
    assert len(server.requests) == 1


@pytest.mark.parametrize("kind", ASYNC)
def test_an_async_body_is_cut_when_the_time_is_over(server, client, guard_of, clock, kind):
    stalled = Stalled()
    server.script(stalled)
    cut = client(kind, guard_of(Timeout(total=10)))

    async def scene():
        async with cut.client.stream("GET", server.url()) as answer:
            parts = answer.aiter_raw()
            assert await anext(parts) == b"first"
            rest = asyncio.ensure_future(anext(parts))
            await clock.advance_async(10)
            with pytest.raises(GuardTimeout, match="body"):
                await rest

    cut.runner.run(scene())
    assert cut.lent == 0


@pytest.mark.parametrize("kind", SYNC_HTTPX)
def test_a_sync_body_ends_at_the_first_part_that_comes_too_late(server, client, guard_of, clock, kind):
    stalled = Stalled()
    server.script(stalled)
    cut = client(kind, guard_of(Timeout(total=10)))
    with cut.client.stream("GET", server.url()) as answer:
        parts = answer.iter_raw()
        assert next(parts) == b"first"
        clock.advance(11)
        stalled.go_on.set()
        with pytest.raises(GuardTimeout, match="body"):
            next(parts)
    assert cut.lent == 0


@pytest.mark.parametrize("kind", sorted(CLIENTS))
def test_a_body_in_time_is_whole(server, client, guard_of, kind):
    server.script(Reply(200, BIG))
    whole = client(kind, guard_of(Timeout(total=10)))
    assert whole.get(server.url()).body == BIG
    assert (whole.lent, whole.kept) == (0, 1)


@pytest.mark.parametrize("library", ["httpx", "httpx2"])
@pytest.mark.parametrize(("given", "left"), [(60, [10, 6]), (None, [10, 6]), (2, [2, 2])])
def test_httpx_timeouts_are_clamped_to_what_is_left(guard_of, library, given, left):
    module, integration = LIBRARIES[library]
    seen = []

    def answer(request):
        seen.append(request.extensions["timeout"])
        return module.Response(503, stream=module.ByteStream(b""))

    guard = guard_of(Retry(attempts=2, base=4, jitter="none"), Timeout(total=10))
    transport = integration.GuardTransport(guard, wrapped=module.MockTransport(answer))
    with module.Client(transport=transport, timeout=given) as client:
        assert client.get("http://x/").status_code == 503
    assert seen == [dict.fromkeys(("connect", "read", "write", "pool"), seconds) for seconds in left]


@pytest.mark.parametrize("library", ["httpx", "httpx2"])
def test_a_body_is_read_with_what_is_left_when_its_reading_begins(guard_of, clock, library):
    module, integration = LIBRARIES[library]
    seen = []

    def answer(request):
        seen.append(request.extensions["timeout"])
        return module.Response(200, stream=module.ByteStream(b"body"))

    transport = integration.GuardTransport(guard_of(Timeout(total=10)), wrapped=module.MockTransport(answer))
    with module.Client(transport=transport) as client, client.stream("GET", "http://x/") as response:
        clock.advance(8)
        assert response.read() == b"body"
    assert seen[0]["read"] == 2


@pytest.mark.parametrize("library", ["httpx", "httpx2"])
def test_without_a_limit_the_callers_timeouts_stay(guard_of, library):
    module, integration = LIBRARIES[library]
    seen = []

    def answer(request):
        seen.append(request.extensions["timeout"])
        return module.Response(200)

    transport = integration.GuardTransport(guard_of(), wrapped=module.MockTransport(answer))
    with module.Client(transport=transport, timeout=module.Timeout(5, read=None)) as client:
        client.get("http://x/")
    assert seen == [{"connect": 5, "read": None, "write": 5, "pool": 5}]


@pytest.mark.parametrize(
    ("given", "connect", "read"),
    [(None, 10, 10), (60, 10, 10), (3, 3, 3), ((3, None), 3, 10), (UrllibTimeout(connect=4, read=60), 4, 10)],
)
def test_requests_timeouts_are_clamped_to_what_is_left(clock, given, connect, read):
    with deadline(10, clock=clock):
        clamped = _clamped(given)
    assert clamped.connect_timeout == connect
    clamped.start_connect()
    assert clamped.read_timeout == pytest.approx(read, abs=0.1)
    assert _clamped(given) is given, "no limit, no change"


@pytest.mark.parametrize("kind", sorted(CLIENTS))
def test_a_body_that_breaks_off_is_retried_when_it_is_read_inside_the_call(server, client, guard_of, kind):
    server.script(Broken(200, b"half"), Reply(200, b"whole"))
    # requests tells its adapter who streams; httpx does not tell its transports.
    options = {} if kind == "requests" else {"buffer": True}
    whole = client(kind, guard_of(Retry(attempts=2, base=0)), **options)
    assert whole.get(server.url()).body == b"whole"
    assert len(server.requests) == 2
    assert whole.lent == 0


@pytest.mark.parametrize("kind", [*SYNC_HTTPX, *ASYNC])
def test_a_body_that_is_streamed_and_breaks_off_is_the_callers_matter(server, client, guard_of, kind):
    server.script(Broken(200, b"half"))
    streamed = client(kind, guard_of(Retry(attempts=2, base=0)))
    with pytest.raises(streamed.network_errors):
        streamed.get(server.url())
    assert len(server.requests) == 1
    assert streamed.lent == 0


def test_a_streamed_body_of_requests_is_not_read_inside_the_call(server, client, guard_of):
    stalled = Stalled()
    server.script(stalled)
    streaming = client("requests", guard_of(Retry(attempts=2, base=0)))
    with streaming.session.get(server.url(), stream=True, timeout=5) as answer:
        assert answer.raw.read(5) == b"first"
        stalled.go_on.set()
        assert answer.raw.read() == b"first"


@pytest.mark.parametrize("kind", [*SYNC_HTTPX, *ASYNC])
def test_a_buffered_response_behaves_like_any_other(server, client, guard_of, kind):
    server.script(Reply(200, b'{"a": 1}', {"Content-Type": "application/json"}))
    buffered = client(kind, guard_of(Retry()), buffer=True)
    work = buffered.client.get(server.url())
    response = buffered.runner.run(work) if buffered.is_async else work
    assert response.json() == {"a": 1}
    assert response.elapsed.total_seconds() > 0
    assert response.is_closed
