"""What a letter says of a call: names, arguments, errors."""

import json
from datetime import UTC, datetime
from decimal import Decimal

import pytest

from holdfast import CircuitOpen, Outcome, OutcomeKind
from holdfast.letters.entry import (
    Arguments,
    bind,
    capped,
    domain_of,
    error_code_of,
    error_message_of,
    failure_type_of,
    unreplayable,
)


@pytest.mark.parametrize(
    ("name", "domain"),
    [
        ("payments", "payments"),
        ("payments.charge_v2", "payments.charge_v2"),
        ("Payments API", "payments_api"),
        ("Payments-API/charge", "payments_api_charge"),
        ("orders..created.", "orders.created"),
        ("9lives", "other"),
        ("", "other"),
        ("ünder", "nder"),
        ("日本", "other"),
        ("a" * 65, "other"),
        ("a" * 64, "a" * 64),
    ],
)
def test_a_domain_is_made_of_a_guards_name(name: str, domain: str) -> None:
    assert domain_of(name) == domain


def test_an_open_breakers_refusal_has_a_failure_type_of_its_own() -> None:
    refused = Outcome.rejected(CircuitOpen("payments", 3.0))
    assert failure_type_of(refused) == "CIRCUIT_BREAKER_OPEN"
    assert error_code_of(refused) == "circuit_open"


def test_any_other_failure_is_named_after_its_exception() -> None:
    failed = Outcome.failure(OutcomeKind.TRANSIENT_FAILURE, ConnectionResetError("peer"))
    assert failure_type_of(failed) == "MAX_RETRIES_CONNECTIONRESETERROR"
    assert error_code_of(failed) == "ConnectionResetError"
    assert failure_type_of(Outcome.failure(OutcomeKind.TIMEOUT)) == "MAX_RETRIES_GUARDTIMEOUT"


def test_an_http_status_is_the_error_code() -> None:
    class Answer(Exception):
        status_code = 503

    assert error_code_of(Outcome.failure(OutcomeKind.TRANSIENT_FAILURE, Answer())) == "503"


def test_the_error_message_is_redacted_and_storable() -> None:
    failed = Outcome.failure(OutcomeKind.TRANSIENT_FAILURE, ValueError("password=hunter2 \0 for bob@example.com"))
    message = error_message_of(failed)
    assert "hunter2" not in message
    assert "bob@" not in message
    assert "\0" not in message


def test_arguments_are_kept_by_the_names_of_the_parameters() -> None:
    def charge(order_id: str, amount: int = 5, /, *extra: int, note: str = "", **more: object) -> None: ...

    assert bind(charge, ("o1", 7, 8, 9), {"note": "x", "colour": "red"}) == {
        "order_id": "o1",
        "amount": 7,
        "extra": (8, 9),
        "note": "x",
        "colour": "red",
    }


def test_arguments_that_do_not_fit_the_function_are_kept_by_position() -> None:
    assert bind(lambda: None, (1, 2), {"x": 3}) == {"arg0": 1, "arg1": 2, "x": 3}


def test_an_argument_that_is_not_json_costs_only_itself() -> None:
    class Odd:
        def __str__(self) -> str:
            raise RuntimeError("no")

    given = Arguments(lambda a, b, c: None, (1, Odd(), float("nan")), {})
    assert given.kept == {"a": 1}
    assert set(given.omitted) == {"b", "c"}
    request = given.request("f")
    assert "not JSON were not kept: b, c" in str(unreplayable(request))


def test_values_are_kept_as_json_has_them() -> None:
    at = datetime(2026, 5, 1, tzinfo=UTC)
    given = Arguments(lambda a, b, c: None, ((1, 2), Decimal("1.50"), at), {})
    assert given.kept == {"a": [1, 2], "b": "1.50", "c": "2026-05-01T00:00:00+00:00"}


def test_secrets_are_masked_by_key_and_mark_the_letter_as_not_replayable() -> None:
    given = Arguments(lambda card, api_key: None, ({"number": "n", "pin": 1234}, "k"), {})
    assert given.kept == {"card": {"number": "n", "pin": "***"}, "api_key": "***"}
    assert "masked: card.pin, api_key" in str(unreplayable(given.request("f")))


def test_texts_that_only_look_like_secrets_stay_for_the_replay_needs_them() -> None:
    given = Arguments(lambda email: None, ("bob@example.com",), {})
    assert given.kept == {"email": "bob@example.com"}
    assert unreplayable(given.request("f")) is None


def test_a_part_that_is_too_large_is_replaced_by_a_preview() -> None:
    data = {"args": {"text": "ä" * 5000}}
    cut = capped(data, 4096)
    assert cut["_truncated"] is True
    assert cut["original_size"] == len(json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode())
    assert len(cut["preview"]) <= 500
    assert capped(data, 20_000) is data
    assert "too large" in str(unreplayable(cut))
