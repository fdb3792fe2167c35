"""The rules of HTTP by themselves: every way to them gives the same answer."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.core.classify import http_classifier, was_not_sent
from holdfast.core.outcome import Evidence, Outcome, OutcomeKind, Verdict
from holdfast.errors import OutcomeError, PolicyError
from holdfast.failover.rotation import ProxyRotator
from holdfast.guard.http_rules import HttpRules, answer, is_idempotent, mark_unsent
from holdfast.guard.retry_policy import RetryPolicy
from holdfast.integrations._exchange import http_guard
from holdfast.telemetry.hub import Hub
from holdfast.testing.clock import ManualClock

RETRIED = (OutcomeKind.TRANSIENT_FAILURE, Evidence.FAILURE)
THROTTLED = (OutcomeKind.TRANSIENT_FAILURE, Evidence.SUCCESS)
UNKNOWN = (OutcomeKind.TERMINAL_FAILURE, Evidence.NEUTRAL)
ANSWERED = (OutcomeKind.SUCCESS, Evidence.SUCCESS)
COMPLAINED = (OutcomeKind.TERMINAL_FAILURE, Evidence.SUCCESS)
EVERY_WAY = [
    ("200", None, ANSWERED), ("404", None, ANSWERED), ("500", None, ANSWERED), ("501", "3", ANSWERED),
    ("502", None, RETRIED), ("503", "3", RETRIED), ("504", None, RETRIED),
    ("429", None, ANSWERED), ("429", "soon", ANSWERED), ("429", "3", THROTTLED),
    ("401", None, UNKNOWN), ("407", "3", UNKNOWN),
]  # fmt: skip


class StatusError(Exception):
    def __init__(self, response: Any) -> None:
        super().__init__("bad status")
        self.response = response


def responding(status: str, retry_after: str | None) -> Any:
    return SimpleNamespace(status_code=int(status), headers={} if retry_after is None else {"Retry-After": retry_after})


def read(verdict: OutcomeKind | Verdict | None) -> tuple[OutcomeKind, Evidence]:
    verdict = OutcomeKind.SUCCESS if verdict is None else verdict
    kind = verdict.kind if isinstance(verdict, Verdict) else verdict
    return kind, (verdict.evidence if isinstance(verdict, Verdict) else None) or kind.evidence


@pytest.mark.parametrize(("status", "retry_after", "meaning"), EVERY_WAY)
def test_a_response_means_the_same_to_every_user_of_the_rules(status, retry_after, meaning):
    response, clock = responding(status, retry_after), ManualClock()
    rotator = ProxyRotator(["a"], RetryPolicy(), clock=clock, telemetry=Hub())
    judges = [
        http_classifier,
        HttpRules().judge,
        rotator.guard.plan.setting.judge,
        http_guard("api", clock=clock, telemetry=Hub()).plan.setting.judge,
    ]
    assert {read(judge(response)) for judge in judges} == {meaning}


@pytest.mark.parametrize(("status", "retry_after", "meaning"), EVERY_WAY)
def test_a_response_that_is_raised_counts_like_one_that_is_returned(status, retry_after, meaning):
    error = StatusError(responding(status, retry_after))
    expected = COMPLAINED if meaning == ANSWERED else meaning
    assert {read(classify(error)) for classify in (http_classifier, HttpRules().classify)} == {expected}


def test_which_statuses_are_retried_can_be_chosen():
    rules = HttpRules([500])
    assert read(rules.judge(responding("500", None))) == RETRIED
    assert read(rules.judge(responding("503", None))) == ANSWERED
    with pytest.raises(PolicyError, match=r"retry_status_codes must be 500..599, got 404"):
        HttpRules([503, 404])


def test_values_without_a_status_are_left_alone():
    assert HttpRules().judge("text") is None
    assert HttpRules().judge({"status": 503}) is None


@pytest.mark.parametrize(
    ("method", "key", "repeatable"),
    [("get", None, True), ("DELETE", "", True), ("POST", None, False), ("PATCH", "", False), ("POST", "k1", True),
     (None, None, False)],
)  # fmt: skip
def test_a_request_may_be_made_twice_by_its_method_or_its_key(method, key, repeatable):
    assert is_idempotent(method, key) is repeatable


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("ReadTimeout", OutcomeKind.TIMEOUT),
        ("EmptyPoolError", OutcomeKind.TIMEOUT),
        ("LocalProtocolError", OutcomeKind.TERMINAL_FAILURE),
        ("RemoteProtocolError", OutcomeKind.TRANSIENT_FAILURE),
    ],
)
def test_errors_of_http_libraries_are_known_by_name_also_when_they_are_packed(name, kind):
    error = type(name, (Exception,), {})()
    assert HttpRules().classify(error) is kind
    assert HttpRules().classify(ConnectionError(error)) is kind


def test_what_a_packed_error_says_about_sending_is_noted_on_the_outer_one():
    packed, broken = ConnectionError(ConnectionRefusedError()), ConnectionError("reset")
    mark_unsent(packed)
    mark_unsent(broken)
    assert (was_not_sent(packed), was_not_sent(broken)) == (True, False)


def test_a_failing_response_is_returned_and_an_error_is_raised_as_itself():
    response, error = responding("503", None), OSError("down")
    assert answer(Outcome.failure(OutcomeKind.TRANSIENT_FAILURE, result=response)) is response
    assert answer(Outcome.success(response)) is response
    with pytest.raises(OSError, match="down") as caught:
        answer(Outcome.failure(OutcomeKind.TRANSIENT_FAILURE, error))
    assert caught.value is error
    with pytest.raises(OutcomeError):
        answer(Outcome.failure(OutcomeKind.TERMINAL_FAILURE))
