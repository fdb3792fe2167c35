import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.redact import is_secret_key, redact, redact_value

S3 = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY1"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("GET https://bob:hunter2@api.test/v1", "GET https://***@api.test/v1"),
        ("postgresql+psycopg://u:p/w@db:5432/x", "postgresql+psycopg://***@db:5432/x"),
        ("https://medium.test/@someone", "https://medium.test/@someone"),
        ("https://api.test:8080/a?key=1&q=two;z#frag", "https://api.test:8080/a?key=***&q=***&***#frag"),
        ("https://a.test/cb#access_token=abc&x=1", "https://a.test/cb#access_token=***&x=***"),
        ("Authorization: Bearer abcdefgh", "Authorization: ***"),
        ("{'Authorization': 'Basic dTpw', 'Host': 'h'}", "{'Authorization': '***', 'Host': 'h'}"),
        ("[('authorization', 'Bearer abc'), ('host', 'h')]", "[('authorization', '***'), ('host', 'h')]"),
        ("Cookie: a=b; c=d\nHost: h", "Cookie: ***\nHost: h"),
        ("Set-Cookie: sid=31; Secure", "Set-Cookie: ***"),
        ("got bearer abc.def-123 here", "got bearer *** here"),
        ("sent Basic dXNlcjpwYXNz to host", "sent Basic *** to host"),
        ("Basic authentication failed", "Basic authentication failed"),
        ("password=hunter2 user=bob", "password=*** user=bob"),
        ("DB_PASSWORD: hunter2", "DB_PASSWORD: ***"),
        ('{"password": "a \\" b", "user": "bob"}', '{"password": "***", "user": "bob"}'),
        ("{'api_key': 'abc', 'n': 1}", "{'api_key': '***', 'n': 1}"),
        ("{b'x-api-key': b'abc'}", "{b'x-api-key': '***'}"),
        ("clientSecret => abc", "clientSecret => ***"),
        ("refresh-token=abc&n=1", "refresh-token=***&n=1"),
        ("pin: 1234, spin: 7", "pin: *** spin: 7"),
        ("jwt eyJhbGciOi.eyJzdWIiOi.SflKxw", "jwt ***"),
        ("key AKIAIOSFODNN7EXAMPLE", "key ***"),
        ("using sk_live_abc123", "using ***"),
        ("ghp_abcdefghij0123456789", "***"),
        ("digest 0123456789abcdef0123456789abcdef!", "digest ***!"),
        (f"secretly {S3} used", "secretly *** used"),
        ("mail bob.smith+x@example.co.uk now", "mail ***@*** now"),
        ("card 4111 1111 1111 1111 declined", "card *** declined"),
        ("card 4111-1111-1111-1111.", "card ***."),
        ("-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY-----.", "***."),
        ("-----BEGIN PRIVATE KEY-----\nabc", "***"),
    ],
)
def test_secrets_and_personal_data_are_masked(text, shown):
    assert redact(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ConnectionError: cannot connect to api.test:443 (timed out after 3.25 s)",
        "File /usr/lib/python3.11/site-packages/holdfast/core/redact.py, line 12",
        "HTTPConnectionPool(host='localhost', port=8080): Max retries exceeded",
        "order 550e8400-e29b-41d4-a716-446655440000 failed at 2026-01-01T12:00:00Z",
        "value 0.12345678901234567 is out of range",
        "KeyError: 'a_rather_long_identifier_with_number_42_in_it'",
    ],
)
def test_ordinary_messages_stay_readable(text):
    assert redact(text) == text


def test_a_long_text_is_cut_with_an_ellipsis():
    assert redact("word " * 200, limit=10) == "word word…"
    assert len(redact("x y " * 10_000)) == 500
    assert redact("word " * 2000, limit=None) == "word " * 2000


def test_a_secret_cut_in_half_is_not_shown():
    secret = "Zq1" * 4000
    assert "Zq1" not in redact(f"prefix {secret}", limit=500)
    assert "hunter2" not in redact("a" + " " * 7990 + "password=hunter2", limit=500)


secrets = st.from_regex(r"[A-Z][a-z0-9]{7,20}Q9", fullmatch=True)


@given(st.text(alphabet=st.characters(codec="utf-8"), max_size=30), secrets, st.sampled_from([
    "https://user:{}@host/path", "https://host/p?token={}", "password={}", "'secret': '{}'", '"api_key": "{}"',
    "Authorization: Bearer {}", "Cookie: sid={}", "Bearer {}", "db_passwd : {}", '{{\\"token\\": \\"{}\\"}}',
]))  # fmt: skip
def test_a_secret_does_not_show_whatever_stands_around_it(noise, secret, form):
    assert secret not in redact(f"{noise} {form.format(secret)} {noise}", limit=None)


@given(st.text(max_size=2000), st.integers(1, 600))
def test_the_result_fits_the_limit_whatever_the_text(text, limit):
    assert len(redact(text, limit)) <= limit


pieces = st.sampled_from([
    "a", "A1", "-", "_", "=", ":", "@", ".", "/", "://", '"', "'", "\\", "\\'", " ", "?", "&", "0", "4 ", "4-",
    "#", "\n", "é", "token", "token=", "password", "key", "cookie:", "Bearer ", "eyJ", "a:", "a@", "x://",
    "secret'", ",", "-----BEGIN PRIVATE KEY-----",
])  # fmt: skip


@given(st.lists(pieces, min_size=1, max_size=4))
def test_repetition_costs_time_in_proportion_to_the_length(parts):
    text = "".join(parts) * (40_000 // len("".join(parts)))
    begin = time.process_time()
    redact(text, limit=None)
    # A quadratic pattern needs minutes for this; a linear one some hundredths of a second.
    assert time.process_time() - begin < 2


def test_values_are_masked_by_the_name_of_their_key():
    assert redact_value({"user": "bob", "password": "x", "nested": [{"apiKey": 5, "n": 1}], "token": None}) == {
        "user": "bob",
        "password": "***",
        "nested": [{"apiKey": "***", "n": 1}],
        "token": None,
    }


def test_texts_inside_values_are_redacted():
    assert redact_value(["mail bob@example.com", ("password=x", 3), {"a@b.de"}]) == [
        "mail ***@***",
        ("password=***", 3),
        {"***@***"},
    ]


def test_the_original_value_is_not_changed():
    value = {"password": "x", "list": [1]}
    redact_value(value)["list"].append(2)
    assert value == {"password": "x", "list": [1]}


def test_other_objects_are_kept():
    thing = object()
    assert redact_value({"a": thing, 1: 2.5}) == {"a": thing, 1: 2.5}


def test_a_value_that_contains_itself_ends():
    value: list[object] = []
    value.append(value)
    assert "***" in repr(redact_value(value))


json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=20,
)


@given(json, secrets)
def test_no_secret_survives_in_any_nesting(value, secret):
    assert secret not in repr(redact_value({"a": [value, {"db_password": [secret, {"x": secret}]}]}))


@pytest.mark.parametrize(
    "name", ["password", "X-Api-Key", "clientSecret", "AUTH", "session_id", "Set-Cookie", "db.passwd", "otp"]
)
def test_secret_names_are_recognised(name):
    assert is_secret_key(name)


def test_a_name_that_is_longer_than_any_is_looked_at_too():
    assert is_secret_key("x" * 1_000 + "_password")
    assert not is_secret_key("x" * 1_000)


@pytest.mark.parametrize("name", ["user", "author", "spin", "key", "compass", "opinion", "host"])
def test_ordinary_names_are_not(name):
    assert not is_secret_key(name)
