"""What is asked of the server: one row for each route with each filter that the console offers, and its bar."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlencode

from benchmarks.server.setup import Setup

LIST_MS: Final = {"postgres": 100.0, "sqlite": 150.0}
GLANCE_MS: Final = {"postgres": 50.0, "sqlite": 50.0}
DEPTHS: Final = (0.9, 0.5, 0.1, 0.01)
"""Where deep pages begin, as a share of the rows from the oldest."""

Made = Callable[[Setup, int], Mapping[str, object]]
"""The parameters of the request of a number: not each time the same page."""


@dataclass(frozen=True, slots=True)
class Row:
    """A request. `most_ms` is the bar for 95 of 100 of them; `finds` says whether its page must hold something."""

    key: str
    title: str
    path: str
    made: Made = lambda setup, n: {}
    finds: bool = True
    most_ms: Mapping[str, float] = field(default_factory=lambda: LIST_MS)

    def address(self, setup: Setup, number: int) -> str:
        given = urlencode(self.made(setup, number), doseq=True)
        path = self.path.format(record=setup.record(_some(setup, number)), uuid=setup.uuid(_some(setup, number)))
        return f"/api/v1{path}?{given}" if given else f"/api/v1{path}"


def _some(setup: Setup, number: int) -> int:
    """A row, another one each time, from the whole of the table."""
    return 1 + number * 7_919 * 13 % setup.rows


def _fixed(**given: object) -> Made:
    return lambda setup, n: given


def _deep(cursor: Callable[[Setup, int], str], **given: object) -> Made:
    """The page that begins somewhere deep."""

    def made(setup: Setup, n: int) -> Mapping[str, object]:
        depth = max(60, int(setup.rows * DEPTHS[n % len(DEPTHS)]))
        return {"after": cursor(setup, depth), **given}

    return made


def _span(start: str, end: str, **given: object) -> Made:
    """A day, or a tenth of everything if that is less."""

    def made(setup: Setup, n: int) -> Mapping[str, object]:
        size = min(43_200, setup.rows // 10)
        first = 1 + n * 7_919 % (setup.rows - size)
        return {start: setup.moment(first), end: setup.moment(first + size), **given}

    return made


def _rows(resource: str, *made: tuple[str, Made] | tuple[str, Made, bool]) -> tuple[Row, ...]:
    """Lists of one resource, by what they are filtered by."""
    return tuple(
        Row(f"{resource}: {title}", title, f"/{resource}", how, *rest)
        for title, how, *rest in made
    )  # fmt: skip


def _asked(resource: str, *paths: str, most_ms: Mapping[str, float] = LIST_MS) -> tuple[Row, ...]:
    """What else is asked of a resource."""
    return tuple(Row(f"{resource}{path}", path, f"{resource}{path}", most_ms=most_ms) for path in paths)


LETTERS: Final = (
    *_rows(
        "letters",
        ("everything", _fixed()),
        ("500 at once", _fixed(limit=500)),
        ("deep", _deep(Setup.cursor)),
        ("status", lambda setup, n: {"status": ("pending", "resolved", "archived", "requires_review")[n % 4]}),
        ("status, deep", _deep(Setup.cursor, status="pending")),
        ("domain", lambda setup, n: {"domain": f"domain_{n % 10}"}),
        ("domain, deep", _deep(Setup.cursor, domain="domain_3")),
        ("rare domain", _fixed(domain="rare")),
        ("failure type", lambda setup, n: {"failure_type": f"FAILURE_{n % 4}"}),
        ("rare failure type", _fixed(failure_type="RARE")),
        ("no such failure type", _fixed(failure_type="NONE"), False),
        ("entity type", _fixed(entity_type="order")),
        ("rare entity type", _fixed(entity_type="refund"), False),
        ("entity", lambda setup, n: {"entity_id": f"order-{_some(setup, n)}"}),
        ("no such entity", _fixed(entity_id="none"), False),
        ("user", lambda setup, n: {"user_id": n % 1000}),
        ("rare user", _fixed(user_id="rare")),
        ("no such user", _fixed(user_id="none"), False),
        ("a day", _span("created_from", "created_to")),
        ("status, domain", lambda setup, n: {"status": "pending", "domain": f"domain_{n % 10}"}),
        ("status, failure type", lambda setup, n: {"status": "pending", "failure_type": f"FAILURE_{n % 4}"}),
        ("status, rare failure type", _fixed(status="resolved", failure_type="RARE")),
        ("status, domain, failure type", _fixed(status="pending", domain="domain_3", failure_type="FAILURE_1")),
        ("domain, rare user", _fixed(domain="rare", user_id="rare")),
        ("status, user", lambda setup, n: {"status": "resolved", "user_id": 1 + n % 9}),
        ("status, no such user", _fixed(status="resolved", user_id="none"), False),
        ("status, entity", _fixed(status="resolved", entity_id="order-2")),
        ("status, rare entity type", _fixed(status="resolved", entity_type="refund"), False),
        ("status, domain, a day", _span("created_from", "created_to", status="resolved", domain="domain_3")),
        ("everything at once", _span("created_from", "created_to", status="resolved", domain="domain_3",
                                     failure_type="FAILURE_1", entity_type="order", user_id=331), False),
    ),
    *_asked("/letters", "/facets", "/statistics", "/retention", "/domains", "/fingerprints", "/{record}"),
    Row("facets, chosen", "/facets of a status and a domain", "/letters/facets",
        _fixed(status="pending", domain="domain_3")),
    Row("fingerprints, filtered", "/fingerprints of a domain", "/letters/fingerprints", _fixed(domain="domain_3")),
    Row("fingerprints, rare", "/fingerprints of a rare user", "/letters/fingerprints", _fixed(user_id="rare")),
    Row("fingerprints, rare type", "/fingerprints of a rare failure type", "/letters/fingerprints",
        _fixed(failure_type="RARE")),
    Row("fingerprints, none", "/fingerprints of no such entity type", "/letters/fingerprints",
        _fixed(entity_type="none")),
)  # fmt: skip
OUTBOX: Final = (
    *_rows(
        "outbox",
        ("everything", _fixed()),
        ("deep", _deep(Setup.uuid)),
        ("status", lambda setup, n: {"status": ("pending", "succeeded", "abandoned")[n % 3]}),
        ("status, deep", _deep(Setup.uuid, status="pending")),
        ("status of none", _fixed(status="scheduled"), False),
        ("operation", lambda setup, n: {"operation": f"operation_{n % 5}"}),
        ("rare operation", _fixed(operation="rare"), False),
        ("target", lambda setup, n: {"target": f"target_{n % 5}"}),
        ("rare target", _fixed(target="rare"), False),
        ("subject", lambda setup, n: {"subject_id": f"customer-{n % min(setup.rows, 100_000)}"}, False),
        ("rare subject", _fixed(subject_id="rare")),
        ("key", lambda setup, n: {"key": f"key-{n % 1000}"}),
        ("key, waiting", lambda setup, n: {"key": f"key-{n % 10 * 100}", "status": "pending"}),
        ("rare key", _fixed(key="rare"), False),
        ("queue", _fixed(queue="slow")),
        ("rare queue", _fixed(queue="rare"), False),
        ("error", _fixed(error="ConnectionError")),
        ("rare error", _fixed(error="RareError"), False),
        ("verification", _fixed(verification="failed")),
        ("saga", lambda setup, n: {"saga_id": setup.uuid(_some(setup, n) // 10 * 10)}, False),
        ("status, operation, target", _fixed(status="abandoned", operation="operation_3", target="target_3")),
        ("status, rare operation", _fixed(status="abandoned", operation="rare"), False),
    ),
    *_asked("/outbox", "/facets", "/{uuid}"),
)  # fmt: skip
SAGAS: Final = (
    *_rows(
        "sagas",
        ("everything", _fixed()),
        ("deep", _deep(Setup.timed_cursor)),
        ("state", lambda setup, n: {"state": ("running", "completed", "compensated", "stuck")[n % 4]}),
        ("state of none", _fixed(state="compensating"), False),
        ("definition", lambda setup, n: {"definition": f"order_{n % 5}"}),
        ("rare definition", _fixed(definition="rare"), False),
        ("subject", lambda setup, n: {"subject_id": f"customer-{n % min(setup.rows, 100_000)}"}, False),
        ("rare subject", _fixed(subject_id="rare"), False),
        ("state, definition", _fixed(state="stuck", definition="order_3")),
        ("state, rare definition", _fixed(state="completed", definition="rare"), False),
    ),
    *_asked("/sagas", "/facets", "/{uuid}"),
)  # fmt: skip
WORKFLOWS: Final = (
    *_rows(
        "workflows",
        ("everything", _fixed()),
        ("deep", _deep(Setup.cursor)),
        ("status", lambda setup, n: {"status": ("RUNNING", "SUCCEEDED", "TERMINAL")[n % 3]}),
        ("several statuses", _fixed(status=["RUNNING", "TERMINAL", "PAUSED"])),
        ("status, deep", _deep(Setup.cursor, status="RUNNING")),
        ("name", lambda setup, n: {"name": f"flow_{n % 10}"}),
        ("rare name", _fixed(name="rare")),
        ("no such name", _fixed(name="none"), False),
        ("application", _fixed(application="shop")),
        ("rare application", _fixed(application="rare"), False),
        ("parent", lambda setup, n: {"parent": setup.record(_some(setup, n) // 20 * 20 or 20)}, False),
        ("pipeline", lambda setup, n: {"pipeline": f"pipeline_{n % 50 * 2}"}),
        ("rare pipeline", _fixed(pipeline="rare")),
        ("a day", _span("since", "until")),
        ("status, name", lambda setup, n: {"status": "TERMINAL", "name": "flow_2"}),
        ("status, name of none", _fixed(status="RUNNING", name="flow_3"), False),
        ("status, rare name", _fixed(status="SUCCEEDED", name="rare")),
        ("status, application", _fixed(status="TERMINAL", application="shop")),
        ("name, a day", _span("since", "until", name="flow_3")),
    ),
    *_asked("/workflows", "/facets", "/stranded", "/dead", "/{record}", "/{record}/log"),
)  # fmt: skip
AUDIT: Final = (
    *_rows(
        "audit",
        ("everything", _fixed()),
        ("deep", _deep(Setup.timed_cursor)),
        ("subject", lambda setup, n: {"subject": f"customer-{n % min(setup.rows, 100_000)}"}, False),
        ("rare subject", _fixed(subject="rare")),
        ("entry", lambda setup, n: {"entry": setup.uuid(_some(setup, n))}),
        ("type", _fixed(type="operation_failed")),
        ("types", _fixed(type=["operation_failed", "operation_parked"])),
        ("rare type", _fixed(type="operation_parked"), False),
        ("stream", lambda setup, n: {"stream": f"s{n % 16}"}),
        ("rare stream", _fixed(stream="rare"), False),
        ("a day", _span("since", "until")),
        ("type, a day", _span("since", "until", type="operation_failed")),
        ("rare type, a day", _span("since", "until", type="operation_parked"), False),
    ),
    *_asked("/audit", "/types", "/status", "/streams"),
)  # fmt: skip
GLANCE: Final = _asked("/overview", "", most_ms=GLANCE_MS)
OTHERS: Final = (
    *_asked("/overview", "/series"),
    *(
        Row(path, path, path, finds=False)
        for path in ("/bulk", "/breakers", "/guards", "/pools", "/workers", "/schedules")
    ),
)
GROUPS: Final = {
    "overview": (*GLANCE, *OTHERS),
    "letters": LETTERS,
    "outbox": OUTBOX,
    "sagas": SAGAS,
    "workflows": WORKFLOWS,
    "audit": AUDIT,
}
ROWS: Final = tuple(row for rows in GROUPS.values() for row in rows)
MIX: Final = (
    "letters: everything", "letters: status, domain", "/letters/facets", "outbox: status", "workflows: name",
    "sagas: everything", "audit: everything", "/overview",
)  # fmt: skip
"""What the many readers ask for, by turns."""
BY_KEY: Final = {row.key: row for row in ROWS}
OPERATORS: Final = {
    "/overview": "/api/v1/overview",
    "a page of letters": "/api/v1/letters?status=pending",
    "a letter": "/api/v1/letters/{record}",
    "/breakers": "/api/v1/breakers",
}
"""What an operator looks at meanwhile, each once a second."""


def same(setup: Setup) -> tuple[str, ...]:
    """Some thirty pages that everybody asks for."""
    return tuple(dict.fromkeys(BY_KEY[key].address(setup, number) for number in range(4) for key in MIX))


def different(setup: Setup) -> tuple[str, ...]:
    """Pages of letters, entries by their id, and events, of which no two are the same."""
    made = []
    for number in range(700):
        at = 60 + _some(setup, number) % (setup.rows - 60)
        made += [
            f"/api/v1/letters?{urlencode({'after': setup.cursor(at)})}",
            f"/api/v1/outbox/{setup.uuid(at)}",
            f"/api/v1/audit?{urlencode({'after': setup.timed_cursor(at)})}",
        ]
    return tuple(made)


FLOODS: Final = {"same": same, "different": different}
