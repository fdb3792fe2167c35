import math
import socket
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from email.message import Message
from types import SimpleNamespace
from typing import Any
from urllib.error import HTTPError

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.classify import (
    Classifier,
    ResultClassifier,
    default_classify,
    http_classifier,
    retry_after_hint,
    was_not_sent,
)
from holdfast.core.outcome import Evidence, OutcomeKind, Verdict
from holdfast.errors import CircuitOpen, GuardTimeout, OutcomeError, RateLimited

NOON = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)


class FlakyTimeout(ConnectionError, TimeoutError):
    pass


class LocalTimeout(TimeoutError):
    pass


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (TimeoutError(), OutcomeKind.TIMEOUT),
        (LocalTimeout(), OutcomeKind.TIMEOUT),
        (FlakyTimeout(), OutcomeKind.TIMEOUT),
        (GuardTimeout("g"), OutcomeKind.TIMEOUT),
        (ConnectionResetError(), OutcomeKind.TRANSIENT_FAILURE),
        (OSError(), OutcomeKind.TRANSIENT_FAILURE),
        (ValueError(), OutcomeKind.TRANSIENT_FAILURE),
        (RuntimeError(), OutcomeKind.TRANSIENT_FAILURE),
        (Exception(), OutcomeKind.TRANSIENT_FAILURE),
        (TypeError(), OutcomeKind.TERMINAL_FAILURE),
        (AttributeError(), OutcomeKind.TERMINAL_FAILURE),
        (NameError(), OutcomeKind.TERMINAL_FAILURE),
        (UnboundLocalError(), OutcomeKind.TERMINAL_FAILURE),
        (AssertionError(), OutcomeKind.TERMINAL_FAILURE),
        (NotImplementedError(), OutcomeKind.TERMINAL_FAILURE),
        (ModuleNotFoundError(), OutcomeKind.TERMINAL_FAILURE),
        (CircuitOpen("inner"), OutcomeKind.REJECTED),
        (RateLimited("inner", 3.0), OutcomeKind.REJECTED),
        (OutcomeError(OutcomeKind.TERMINAL_FAILURE), OutcomeKind.TERMINAL_FAILURE),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else str(value),
)
def test_an_exception_has_the_kind_of_its_nearest_known_base(error, kind):
    assert default_classify(error) is kind


def test_the_kinds_of_many_exception_types_do_not_fill_the_memory():
    from holdfast.core.classify import _kind_of

    for n in range(2000):
        default_classify(type(f"Error{n}", (Exception,), {})())
    assert len(_kind_of.__self__) <= 1024


def response(status: int, **headers: str) -> Any:
    return SimpleNamespace(status_code=status, headers={name.replace("_", "-"): text for name, text in headers.items()})


class StatusError(Exception):
    def __init__(self, answer: Any) -> None:
        super().__init__("bad status")
        self.response = answer


def verdict(subject: Any, now: datetime | None = None) -> tuple[OutcomeKind, float | None, Evidence]:
    answer = http_classifier(subject, now)
    if isinstance(answer, Verdict):
        return answer.kind, answer.retry_after, answer.evidence or answer.kind.evidence
    return answer, None, answer.evidence


@pytest.mark.parametrize("status", [502, 503, 504])
def test_gateway_statuses_are_transient_and_count_against_the_dependency(status):
    expected = (OutcomeKind.TRANSIENT_FAILURE, 7.0, Evidence.FAILURE)
    assert verdict(response(status, Retry_After="7")) == expected
    assert verdict(StatusError(response(status, Retry_After="7"))) == expected


def test_too_many_requests_may_be_retried_but_shows_that_the_dependency_is_alive():
    assert verdict(response(429, Retry_After="7")) == (OutcomeKind.TRANSIENT_FAILURE, 7.0, Evidence.SUCCESS)
    assert http_classifier(response(429)) is OutcomeKind.SUCCESS


@pytest.mark.parametrize("status", [401, 407])
def test_missing_credentials_are_terminal_and_say_nothing_about_health(status):
    assert verdict(response(status)) == (OutcomeKind.TERMINAL_FAILURE, None, Evidence.NEUTRAL)
    assert verdict(StatusError(response(status))) == (OutcomeKind.TERMINAL_FAILURE, None, Evidence.NEUTRAL)


@pytest.mark.parametrize("status", [200, 204, 301, 400, 404, 418, 500, 501])
def test_any_other_response_is_a_success(status):
    assert verdict(response(status)) == (OutcomeKind.SUCCESS, None, Evidence.SUCCESS)


def test_any_other_status_that_was_raised_is_terminal_but_alive():
    assert verdict(StatusError(response(404))) == (OutcomeKind.TERMINAL_FAILURE, None, Evidence.SUCCESS)


def test_what_has_no_status_is_classified_by_its_type():
    assert http_classifier(TimeoutError()) is OutcomeKind.TIMEOUT
    assert http_classifier(StatusError(None)) is OutcomeKind.TRANSIENT_FAILURE
    assert http_classifier({"a": 1}) is OutcomeKind.SUCCESS
    assert http_classifier(None) is OutcomeKind.SUCCESS
    assert http_classifier(SimpleNamespace(status="running")) is OutcomeKind.SUCCESS


def test_aiohttp_and_urllib_spell_it_status():
    assert verdict(SimpleNamespace(status=503, headers={"retry-after": "2"}))[:2] == (OutcomeKind.TRANSIENT_FAILURE, 2)
    headers = Message()
    headers["Retry-After"] = "3"
    error = HTTPError("http://x", 503, "busy", headers, None)
    assert verdict(error)[:2] == (OutcomeKind.TRANSIENT_FAILURE, 3)
    error.close()


def test_the_classifiers_fit_their_types():
    raised: list[Classifier] = [default_classify, http_classifier]
    returned: ResultClassifier = http_classifier
    assert raised
    assert returned


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (3, 3.0),
        (0, 0.0),
        (1.5, 1.5),
        (timedelta(seconds=90), 90.0),
        (None, None),
        (-1, None),
        (math.nan, None),
        (math.inf, None),
        (timedelta(seconds=-1), None),
        ("soon", None),
        (True, None),
        (object(), None),
    ],
)
def test_the_attribute_is_a_number_or_a_timedelta(value, seconds):
    assert retry_after_hint(SimpleNamespace(retry_after=value)) == seconds


def test_our_own_refusals_give_their_hint():
    assert retry_after_hint(RateLimited("g", 2.5)) == 2.5
    assert retry_after_hint(CircuitOpen("g")) is None


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("120", 120.0),
        (" 0.5 ", 0.5),
        ("0", 0.0),
        ("-3", None),
        ("nan", None),
        ("Thu, 01 Jan 2026 12:00:30 GMT", 30.0),
        ("Thu, 01 Jan 2026 12:00:30 -0000", 30.0),
        ("Thu, 01 Jan 2026 13:00:30 +0100", 30.0),
        ("Thu, 01 Jan 2026 11:59:00 GMT", None),
        ("tomorrow", None),
        ("", None),
    ],
)
def test_the_header_is_seconds_or_a_date(header, seconds):
    assert retry_after_hint(response(503, Retry_After=header), NOON) == seconds
    assert retry_after_hint(StatusError(response(503, Retry_After=header)), NOON) == seconds


def test_a_date_counts_from_the_date_of_the_response_when_no_time_is_given():
    late = "Thu, 01 Jan 2026 12:00:30 GMT"
    assert retry_after_hint(response(503, Retry_After=late, Date="Thu, 01 Jan 2026 12:00:10 GMT")) == 20.0
    assert retry_after_hint(response(503, Retry_After=late)) is None


class Hostile:
    @property
    def retry_after(self) -> float:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    "subject",
    [
        None,
        5,
        Hostile(),
        SimpleNamespace(headers=7),
        SimpleNamespace(response=7),
        SimpleNamespace(headers={"Retry-After": b"\xff"}),
    ],
    ids=["nothing", "a number", "hostile", "odd headers", "odd response", "bytes"],
)
def test_a_hint_never_raises(subject):
    assert retry_after_hint(subject, NOON) is None


@given(st.text(), st.text())
def test_no_header_text_raises(value, date):
    hint = retry_after_hint(response(503, Retry_After=value, Date=date))
    assert hint is None or 0 <= hint < math.inf


def test_classifying_loads_neither_asyncio_nor_the_mail_package():
    code = (
        "import sys, holdfast.core.classify as c; c.default_classify(ValueError());"
        "print([m for m in ('asyncio', 'email.utils', 'pydantic') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_clock_is_asked_only_when_there_is_a_header():
    asked: list[datetime] = []

    def clock() -> datetime:
        asked.append(NOON)
        return NOON

    assert retry_after_hint(ValueError(), clock) is None
    assert not asked
    assert retry_after_hint(response(503, Retry_After="Thu, 01 Jan 2026 12:00:30 GMT"), clock) == 30.0


class ConnectTimeout(TimeoutError):
    """Named as in httpx and requests."""


class Marked(Exception):
    not_sent = True


def test_a_request_was_surely_not_sent_without_a_name_or_a_connection():
    sent = [TimeoutError(), ConnectionResetError(), ValueError()]
    unsent = [socket.gaierror(), ConnectionRefusedError(), ConnectTimeout(), Marked()]
    assert [was_not_sent(error) for error in sent + unsent] == [False] * 3 + [True] * 4
