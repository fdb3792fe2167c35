"""Signatures of webhooks, as sender and as receiver."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta

import pytest

from holdfast.errors import PolicyError
from holdfast.outbox.publishers.signature import SIGNATURE, SignatureError, new_secret, sign, verify_webhook

# The example that the libraries of Standard Webhooks are tested with.
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
AT = datetime.fromtimestamp(1614265330, UTC)
ID = "msg_p5jXN8AQM9LWM0D4loKWxJek"
BODY = b'{"test": 2432232314}'
OLD, NEW = new_secret(), new_secret()


def test_the_signature_is_the_one_of_the_standard():
    headers = sign(ID, AT, BODY, SECRET)
    assert headers == {
        "webhook-id": ID,
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }
    assert verify_webhook(headers, BODY, SECRET, now=AT) == ID


def test_header_names_may_have_any_case():
    headers = {name.title(): value for name, value in sign(ID, AT, BODY, SECRET).items()}
    assert verify_webhook(headers, BODY, SECRET, now=AT) == ID


@pytest.mark.parametrize("known", [OLD, NEW, [NEW, OLD]], ids=["old", "new", "both"])
def test_while_a_secret_is_changed_either_side_may_be_first(known):
    assert verify_webhook(sign(ID, AT, BODY, [NEW, OLD]), BODY, known, now=AT) == ID


def test_a_receiver_that_knows_both_accepts_either():
    for secret in (OLD, NEW):
        assert verify_webhook(sign(ID, AT, BODY, secret), BODY, [OLD, NEW], now=AT) == ID


@pytest.mark.parametrize(
    ("change", "body", "story"),
    [
        ({}, b'{"test": 1}', "no signature of this request"),
        ({"webhook-id": "msg_other"}, BODY, "no signature of this request"),
        ({"webhook-timestamp": str(1614265331)}, BODY, "no signature of this request"),
        ({"webhook-timestamp": "yesterday"}, BODY, "no number of seconds"),
        ({"webhook-timestamp": "9" * 30}, BODY, "no number of seconds"),
        ({SIGNATURE: ""}, BODY, "no signature of this request"),
        ({SIGNATURE: "v2,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="}, BODY, "no signature of this request"),
        ({SIGNATURE: "v1,\udcff"}, BODY, "no signature of this request"),
    ],
)
def test_what_was_changed_on_the_way_is_refused(change, body, story):
    with pytest.raises(SignatureError, match=story):
        verify_webhook({**sign(ID, AT, BODY, SECRET), **change}, body, SECRET, now=AT)


@pytest.mark.parametrize("missing", ["webhook-id", "webhook-timestamp", "webhook-signature"])
def test_a_missing_header_is_refused_by_name(missing):
    headers = sign(ID, AT, BODY, SECRET)
    del headers[missing]
    with pytest.raises(SignatureError, match=f"the header {missing} is missing"):
        verify_webhook(headers, BODY, SECRET, now=AT)


def test_another_secret_is_refused():
    with pytest.raises(SignatureError):
        verify_webhook(sign(ID, AT, BODY, OLD), BODY, NEW, now=AT)


@pytest.mark.parametrize("off", [timedelta(seconds=301), timedelta(seconds=-301)])
def test_a_request_from_too_long_ago_or_ahead_is_refused(off):
    with pytest.raises(SignatureError, match="too far from now"):
        verify_webhook(sign(ID, AT, BODY, SECRET), BODY, SECRET, now=AT + off)
    assert verify_webhook(sign(ID, AT, BODY, SECRET), BODY, SECRET, timedelta(seconds=302), now=AT + off) == ID


@pytest.mark.parametrize(
    ("secrets", "story"),
    [
        ([], "at least one secret"),
        ("short", "at least 16 bytes"),
        ("whsec_" + base64.b64encode(b"short").decode(), "at least 16 bytes"),
        ("whsec_no base64!", "must go on in base64"),
    ],
)
def test_a_secret_that_protects_nothing_is_refused_and_not_told(secrets, story):
    with pytest.raises(PolicyError, match=story) as refused:
        sign(ID, AT, BODY, secrets)
    assert "short" not in str(refused.value)
