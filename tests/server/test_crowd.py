"""How many reads are worked on at once, whose turn it is, and what becomes of more."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from httpx import ASGITransport, AsyncClient

from holdfast import Holdfast
from holdfast.access.rights import ROLES, Identity, Role
from holdfast.server.api import create_app
from holdfast.server.callers import Callers
from holdfast.server.crowd import CrowdShield
from holdfast.server.shields import Limits
from tests.server.clients import API, BASE_URL, HERE

LETTERS = "/api/v1/letters"


class Slow:
    """An application that answers once it is told to: what it was asked, and how many it was asked before."""

    def __init__(self) -> None:
        self.begun = asyncio.Queue[str]()
        self.go_on = asyncio.Event()
        self.asked = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.asked += 1
        said = f"{self.asked} {scope['query_string'].decode()}".encode()
        self.begun.put_nowait(scope["path"])
        await self.go_on.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": said})


class Asking:
    """Somebody who asks, in a task of its own."""

    def __init__(
        self, app: Any, path: str = LETTERS, method: str = "GET", *, query: str = "", token: str = "",
        client: tuple[str, int] = ("127.0.0.1", 1), headers: dict[str, str] | None = None,
    ) -> None:  # fmt: skip
        self.said: list[Any] = []
        given = {**(headers or {}), **({"authorization": f"Bearer {token}"} if token else {})}
        scope = {
            "type": "http", "method": method, "path": path, "query_string": query.encode(), "client": client,
            "headers": [(name.encode(), value.encode()) for name, value in given.items()],
        }  # fmt: skip
        self.task = asyncio.create_task(app(scope, self._receive, self._send))

    async def _receive(self) -> Any:
        return {"type": "http.request", "body": b""}

    async def _send(self, message: Any) -> None:
        self.said.append(message)

    async def answered(self) -> tuple[int, dict[bytes, bytes]]:
        await self.task
        return self.said[0]["status"], dict(self.said[0]["headers"])

    async def told(self) -> str:
        """The answer."""
        await self.task
        body: bytes = self.said[1]["body"]
        return body.decode()


async def has_begun(slow: Slow, number: int = 1) -> None:
    for _ in range(number):
        await slow.begun.get()


async def is_in_line() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


def known(**tokens: str) -> Callers:
    """Tokens, each with the name of whom it was when it was last looked at."""
    callers = Callers()
    for token, name in tokens.items():
        scope = {"headers": [(b"authorization", f"Bearer {token}".encode())]}
        callers.note(scope, Identity(name, ROLES[Role.VIEWER], "token"))
    return callers


async def test_more_reads_than_can_wait_are_told_to_come_back() -> None:
    slow = Slow()
    app = CrowdShield(slow, at_once=1, waiting=1, patience_s=60)
    first = Asking(app)
    await has_begun(slow)
    second, third = Asking(app, query="a"), Asking(app, query="b")
    status, headers = await third.answered()
    assert (status, headers[b"retry-after"]) == (503, b"1")
    assert slow.begun.empty()
    slow.go_on.set()
    assert [(await one.answered())[0] for one in (first, second)] == [200, 200]


async def test_a_read_that_has_waited_too_long_is_told_to_come_back() -> None:
    slow = Slow()
    app = CrowdShield(slow, at_once=1, waiting=1, patience_s=0)
    first = Asking(app)
    await has_begun(slow)
    assert (await Asking(app).answered())[0] == 503
    slow.go_on.set()
    assert (await first.answered())[0] == 200


async def test_whoever_goes_away_while_waiting_leaves_the_place_to_another() -> None:
    slow = Slow()
    app = CrowdShield(slow, at_once=1, waiting=1, patience_s=60)
    first = Asking(app)
    await has_begun(slow)
    second = Asking(app)
    await is_in_line()
    second.task.cancel()
    await asyncio.gather(second.task, return_exceptions=True)
    third = Asking(app, query="b")
    slow.go_on.set()
    assert [(await one.answered())[0] for one in (first, third)] == [200, 200]


async def test_a_read_that_fails_gives_its_place_back() -> None:
    async def fails(scope: Any, receive: Any, send: Any) -> None:
        raise RuntimeError("no")

    app = CrowdShield(fails, at_once=1, waiting=0, patience_s=60)
    for _ in range(2):
        with pytest.raises(RuntimeError):
            await Asking(app).task


@pytest.mark.parametrize(
    ("path", "method"),
    [
        ("/api/v1/health", "GET"), ("/api/v1/ready", "GET"), ("/api/v1/events", "GET"), (LETTERS, "POST"),
        ("/", "GET"), ("/assets/main.js", "GET"),
    ],
)  # fmt: skip
async def test_probes_streams_changes_and_files_do_not_stand_in_line(path: str, method: str) -> None:
    slow = Slow()
    app = CrowdShield(slow, at_once=1, waiting=0, patience_s=60)
    first, other = Asking(app), Asking(app, path, method)
    await has_begun(slow, 2)
    slow.go_on.set()
    assert [(await one.answered())[0] for one in (first, other)] == [200, 200]


async def test_who_asks_for_little_is_before_one_who_asks_for_much() -> None:
    slow = Slow()
    callers = known(much="much", little="little")
    app = CrowdShield(slow, at_once=1, waiting=8, patience_s=60, callers=callers)
    first = Asking(app, token="much")
    await has_begun(slow)
    flood = [Asking(app, query=str(at), token="much") for at in range(6)]
    operator = Asking(app, query="operator", token="little")
    await is_in_line()
    slow.go_on.set()
    assert await operator.told() == "2 operator"
    assert [(await one.answered())[0] for one in (first, *flood)] == [200] * 7


async def test_a_newcomer_finds_a_place_where_another_has_taken_all_of_them() -> None:
    slow = Slow()
    callers = known(much="much", little="little")
    app = CrowdShield(slow, at_once=1, waiting=3, patience_s=60, callers=callers)
    first = Asking(app, token="much")
    await has_begun(slow)
    flood = [Asking(app, query=str(at), token="much") for at in range(3)]
    await is_in_line()
    operator = Asking(app, query="operator", token="little")
    assert (await flood[-1].answered())[0] == 503
    slow.go_on.set()
    assert [(await one.answered())[0] for one in (first, operator, *flood[:2])] == [200] * 4


async def test_proofs_that_somebody_makes_up_are_all_in_the_line_of_one_address() -> None:
    slow = Slow()
    app = CrowdShield(slow, at_once=1, waiting=3, patience_s=60, callers=known(good="ada"))
    first = Asking(app, token="x")
    await has_begun(slow)
    flood = [Asking(app, token=f"guess-{at}") for at in range(3)]
    await is_in_line()
    operator = Asking(app, token="good")
    await is_in_line()
    more = Asking(app, token="guess-3")
    assert [(await one.answered())[0] for one in (flood[-1], more)] == [503, 503]
    slow.go_on.set()
    assert [(await one.answered())[0] for one in (first, operator, *flood[:2])] == [200] * 4


async def test_those_who_wait_for_the_same_get_one_answer() -> None:
    slow = Slow()
    app = CrowdShield(slow, at_once=1, waiting=1, patience_s=60)
    first = Asking(app, query="other")
    await has_begun(slow)
    same = [Asking(app, query="same", client=("127.0.0.1", port)) for port in range(5)]
    await is_in_line()
    slow.go_on.set()
    assert await first.told() == "1 other"
    assert [await one.told() for one in same] == ["2 same"] * 5
    assert slow.asked == 2


async def test_nobody_gets_an_answer_that_was_begun_before_they_asked() -> None:
    """They may have changed something just before, and are to see it."""
    slow = Slow()
    app = CrowdShield(slow, at_once=2, waiting=1, patience_s=60)
    first = Asking(app, query="same")
    await has_begun(slow)
    second = Asking(app, query="same")
    await has_begun(slow)
    slow.go_on.set()
    assert [await one.told() for one in (first, second)] == ["1 same", "2 same"]


@pytest.mark.parametrize(
    "other",
    [
        {"token": "b"}, {"query": "other"}, {"client": ("127.0.0.2", 1)}, {"method": "HEAD"}, {"path": f"{LETTERS}/1"},
        {"headers": {"cookie": "holdfast=a"}}, {"headers": {"accept": "text/html"}},
        {"headers": {"x-forwarded-for": "203.0.113.7"}},
    ],
    ids=str,
)  # fmt: skip
async def test_whatever_differs_between_two_requests_they_are_not_answered_together(other: dict[str, Any]) -> None:
    slow = Slow()
    app = CrowdShield(slow, at_once=1, waiting=2, patience_s=60)
    first = Asking(app, query="first")
    await has_begun(slow)
    usual: dict[str, Any] = {"query": "same", "token": "a"}
    one, two = Asking(app, **usual), Asking(app, **{**usual, **other})
    await is_in_line()
    slow.go_on.set()
    assert [(await asked.answered())[0] for asked in (first, one, two)] == [200] * 3
    assert slow.asked == 3


@pytest.mark.parametrize("path", ["/metrics", "/api/v1/session", "/api/v1/access/users", "/api/v1/what/is/new"])
async def test_what_is_not_said_to_be_the_same_for_all_requests_is_worked_out_for_each(path: str) -> None:
    slow = Slow()
    app = CrowdShield(slow, at_once=1, waiting=2, patience_s=60)
    asked = [Asking(app, path) for _ in range(3)]
    await is_in_line()
    slow.go_on.set()
    assert [(await one.answered())[0] for one in asked] == [200] * 3
    assert slow.asked == 3


async def test_with_hooks_of_the_program_everyone_gets_an_answer_of_their_own() -> None:
    slow = Slow()
    app = CrowdShield(slow, at_once=1, waiting=2, patience_s=60, shares=False)
    asked = [Asking(app) for _ in range(3)]
    await is_in_line()
    slow.go_on.set()
    assert [(await one.answered())[0] for one in asked] == [200] * 3
    assert slow.asked == 3


async def test_when_the_one_that_others_wait_for_goes_away_each_asks_alone() -> None:
    slow = Slow()
    app = CrowdShield(slow, at_once=1, waiting=3, patience_s=60)
    first = Asking(app)
    await has_begun(slow)
    leader = Asking(app, query="same")
    await is_in_line()
    others = [Asking(app, query="same") for _ in range(2)]
    await is_in_line()
    leader.task.cancel()
    await asyncio.gather(leader.task, return_exceptions=True)
    slow.go_on.set()
    assert [(await one.answered())[0] for one in (first, *others)] == [200] * 3
    assert slow.asked == 3


async def test_one_that_is_called_just_when_it_goes_away_hands_its_place_on() -> None:
    slow = Slow()
    app = CrowdShield(slow, at_once=1, waiting=3, patience_s=60)
    first = Asking(app)
    await has_begun(slow)
    second, third = Asking(app, query="a"), Asking(app, query="b")
    await is_in_line()
    slow.go_on.set()
    for _ in range(100):
        if first.said:  # just now: the next one is called, and has not heard of it yet
            break
        await asyncio.sleep(0)
    second.task.cancel()
    assert (await third.answered())[0] == 200
    assert (await Asking(app, query="c").answered())[0] == 200


async def test_in_a_crowd_everybody_gets_what_their_own_rights_allow(hold: Holdfast) -> None:
    tokens = {
        "all": hold.access.create_token("all", role="admin")[1],
        "letters": hold.access.create_token("letters", ["letters:read"])[1],
        "outbox": hold.access.create_token("outbox", ["outbox:read"])[1],
        "none": "hf_000000000000_" + "0" * 64,
    }
    app = create_app(hold, limits=Limits(at_once=1, waiting=64))
    async with AsyncClient(transport=ASGITransport(app, client=HERE), base_url=BASE_URL) as client:
        asked = [name for _ in range(20) for name in tokens]
        answers = await asyncio.gather(*(
            client.get(f"{API}/letters", headers={"Authorization": f"Bearer {tokens[name]}"}) for name in asked
        ))  # fmt: skip
    seen = {(name, answer.status_code) for name, answer in zip(asked, answers, strict=True)}
    assert seen == {("all", 200), ("letters", 200), ("outbox", 403), ("none", 401)}
    assert {answer.headers["cache-control"] for answer in answers} == {"no-store"}


async def test_a_token_that_is_revoked_opens_nothing_for_those_who_wait_with_it(hold: Holdfast) -> None:
    token, text = hold.access.create_token("ci", role="viewer")
    app = create_app(hold, limits=Limits(at_once=1, waiting=8))
    async with AsyncClient(
        transport=ASGITransport(app, client=HERE), base_url=BASE_URL, headers={"Authorization": f"Bearer {text}"}
    ) as client:
        assert (await client.get(f"{API}/letters")).status_code == 200
        hold.access.revoke_token(token.id)
        answers = await asyncio.gather(*(client.get(f"{API}/letters") for _ in range(6)))
    assert [answer.status_code for answer in answers] == [401] * 6
