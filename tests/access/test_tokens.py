"""Tokens: what they open, until when, and never more than who made them."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest

from holdfast.access.access import Access
from holdfast.access.records import TOKEN
from holdfast.access.refusals import AccessRefused, Refusal
from holdfast.access.rights import ROLES, Identity, Role
from holdfast.core.redact import redact
from holdfast.errors import PolicyError
from holdfast.store.port import Store
from holdfast.testing.clock import ManualClock

OPERATOR = Identity("olga", ROLES[Role.OPERATOR], "session")


def test_a_token_opens_what_its_scopes_say(access: Access) -> None:
    token, text = access.create_token("ci", ["letters:*", "*:read"], by="root")
    assert text.startswith(f"hf_{token.id}_")
    identity = access.identify_token(text)
    assert identity is not None
    assert (identity.name, identity.via) == (f"token:ci/{token.id}", "token")
    assert identity.may("letters:reveal")
    assert identity.may("audit:read")
    assert not identity.may("audit:admin")
    assert access.has_accounts


def test_the_secret_is_kept_nowhere_and_masked_in_messages(access: Access, store: Store) -> None:
    _, text = access.create_token("ci", role="viewer")
    secret = text.rpartition("_")[2]
    assert secret not in str(store.page(TOKEN))
    assert secret not in redact(f"got {text} from a client")


def test_what_is_no_token_is_nobody(access: Access) -> None:
    token, text = access.create_token("ci", role="viewer")
    _, other = access.create_token("ci", role="viewer")
    mixed = f"hf_{token.id}_{other.rpartition('_')[2]}"
    for wrong in (
        "",
        "hf_",
        text[:-1],
        text + "0",
        text.upper(),
        f" {text}",
        f"{text}\n",
        mixed,
        f"hf_{'0' * 12}_{'0' * 64}",
    ):
        assert access.identify_token(wrong) is None


def test_a_token_ends_when_it_expires(access: Access, clock: ManualClock) -> None:
    token, text = access.create_token("ci", role="viewer", expires_in=timedelta(hours=1))
    assert token.expires_at is not None
    assert token.expires_at - token.created_at == timedelta(hours=1)
    clock.advance(3599)
    assert access.identify_token(text) is not None
    clock.advance(1)
    assert access.identify_token(text) is None


def test_a_token_lives_90_days_unless_something_else_is_said(access: Access, clock: ManualClock) -> None:
    usual, _ = access.create_token("usual", role="viewer")
    endless, text = access.create_token("endless", role="viewer", expires_in=None)
    assert usual.expires_at is not None
    assert usual.expires_at - usual.created_at == timedelta(days=90)
    assert endless.expires_at is None
    clock.advance(timedelta(days=5000).total_seconds())
    assert access.identify_token(text) is not None


@pytest.mark.parametrize("expires_in", [0, -1, 0.5, float("nan"), float("inf"), timedelta(days=4000)])
def test_a_life_that_cannot_be_meant_is_refused(access: Access, expires_in: float) -> None:
    with pytest.raises(PolicyError, match="expires_in must be from 1 second to 3650 days"):
        access.create_token("ci", role="viewer", expires_in=expires_in)


@pytest.mark.parametrize("name", ["", " ", "x" * 101, "a\nb", "a\x00b"])
def test_a_name_that_cannot_be_shown_is_refused(access: Access, name: str) -> None:
    with pytest.raises(PolicyError, match="a token's name"):
        access.create_token(name, role="viewer")


def test_a_token_has_either_scopes_or_a_role(access: Access) -> None:
    for scopes, role in ((None, None), (["*:read"], "viewer")):
        with pytest.raises(PolicyError, match="either scopes or a role"):
            access.create_token("ci", scopes, role=role)


def test_a_revoked_token_opens_nothing_and_stays_to_be_seen(access: Access, clock: ManualClock) -> None:
    token, text = access.create_token("ci", role="viewer")
    clock.advance(10)
    revoked = access.revoke_token(token.id, by="root")
    assert revoked.revoked_at == token.created_at + timedelta(seconds=10)
    assert access.identify_token(text) is None
    assert access.revoke_token(token.id, by="eve").revoked_by == "root"  # the first time counts
    assert [one.id for one in access.tokens()] == [token.id]


def test_a_token_that_there_is_not_cannot_be_revoked(access: Access) -> None:
    with pytest.raises(AccessRefused, match="there is no token 'nope'") as caught:
        access.revoke_token("nope")
    assert caught.value.reason is Refusal.UNKNOWN


@pytest.mark.parametrize("asked", [["*:*"], ["letters:*"], ["letters:reveal"], ["*:read", "access:admin"], ["*:admin"]])
def test_nobody_can_give_what_they_have_not_got(access: Access, asked: list[str]) -> None:
    with pytest.raises(AccessRefused, match="olga may not do") as caught:
        access.create_token("ci", asked, granted_by=OPERATOR)
    assert caught.value.reason is Refusal.BEYOND_RIGHTS
    assert access.tokens() == []


def test_one_may_give_what_one_has_or_less(access: Access) -> None:
    for asked in (["*:read", "*:operate"], ["letters:operate"]):
        access.create_token("ci", asked, granted_by=OPERATOR)
    access.create_token("ci", role="operator", granted_by=OPERATOR)
    with pytest.raises(AccessRefused):
        access.create_token("ci", role="admin", granted_by=OPERATOR)


def test_that_it_was_used_is_noted_once_a_minute(access: Access, store: Store, clock: ManualClock) -> None:
    token, text = access.create_token("ci", role="viewer")
    assert token.last_used_at is None
    versions = []
    for seconds in (0, 30, 29.9, 0.1, 59.9, 0.1):
        clock.advance(seconds)
        assert access.identify_token(text) is not None
        versions.append(store.get(TOKEN, [token.id])[0].version)  # type: ignore[union-attr]  # it is there
    assert versions == [2, 2, 2, 3, 3, 4]
    seen = access.token(token.id)
    assert seen is not None
    assert seen.last_used_at == token.created_at + timedelta(minutes=2)


def test_many_requests_with_one_token_do_not_disturb_each_other(access: Access) -> None:
    token, text = access.create_token("ci", role="viewer")
    found: list[Identity | None] = []
    threads = [threading.Thread(target=lambda: found.append(access.identify_token(text))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {one.name for one in found if one is not None} == {f"token:ci/{token.id}"}
    assert len(found) == 8
    assert None not in found


def test_tokens_are_listed_newest_first_and_those_of_a_user_are_found(access: Access, clock: ManualClock) -> None:
    made = []
    for at in range(4):
        clock.advance(1)
        made.append(access.create_token(f"t{at}", role="viewer", expires_in=60, by="ada" if at % 2 else "bob")[0])
    assert [token.name for token in access.tokens()] == ["t3", "t2", "t1", "t0"]
    access.revoke_token(made[1].id)
    assert [token.name for token in access.live_tokens_of("ada")] == ["t3"]
    clock.advance(60)
    assert access.live_tokens_of("ada") == []
