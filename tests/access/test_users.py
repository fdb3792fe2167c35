"""Users: names, passwords and roles, and the admin who must not be the last to go."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from holdfast import Hub
from holdfast.access.access import PER_ADDRESS, PER_NAME, Access
from holdfast.access.events import AccountChanged, SignInTried
from holdfast.access.passwords import Passwords
from holdfast.access.records import KINDS, USER
from holdfast.access.refusals import AccessRefused, Refusal
from holdfast.access.rights import ROLES, Role
from holdfast.errors import PolicyError, RateLimited
from holdfast.store.port import Store
from holdfast.telemetry.events import GuardEvent
from holdfast.testing.clock import ManualClock
from tests.access.conftest import CHEAP
from tests.stores import fresh_place

PASSWORD = "correct horse battery"
OTHER = "staple staple staple"


def test_who_gives_the_right_password_is_who_they_say(access: Access) -> None:
    user = access.add_user("ada", PASSWORD, "operator", by="root")
    assert (user.name, user.role, user.is_disabled, user.created_by) == ("ada", Role.OPERATOR, False, "root")
    identity = access.authenticate("ada", PASSWORD)
    assert identity is not None
    assert (identity.name, identity.scopes, identity.via) == ("ada", ROLES[Role.OPERATOR], "session")
    assert access.authenticate("ada", OTHER) is None
    assert access.authenticate("bob", PASSWORD) is None
    assert access.authenticate("", "") is None


def test_no_password_is_kept(access: Access, store: Store) -> None:
    access.add_user("ada", PASSWORD, "viewer")
    [record] = store.page(USER)
    assert PASSWORD not in str(record)
    assert record.password.startswith("$argon2id$")


def test_two_users_of_one_password_have_different_hashes(access: Access, store: Store) -> None:
    for name in ("ada", "bob"):
        access.add_user(name, PASSWORD, "viewer")
    assert len({record.password for record in store.page(USER)}) == 2


@pytest.mark.parametrize(
    ("password", "said"), [("short", "this one has 5"), ("", "this one has 0"), ("x" * 1025, "at most 1024")]
)
def test_a_password_that_is_too_short_or_too_long_is_refused_and_not_repeated(
    access: Access, password: str, said: str
) -> None:
    with pytest.raises(PolicyError, match=said) as caught:
        access.add_user("ada", password, "viewer")
    assert not password or password not in str(caught.value)
    assert access.users() == []


@pytest.mark.parametrize("name", ["", "Ada", "a b", "-ada", "x" * 101, "ada\n", "ada:1", "local", "anonymous", "ådå"])
def test_a_name_that_cannot_be_told_from_others_is_refused(access: Access, name: str) -> None:
    with pytest.raises(PolicyError, match=r"name"):
        access.add_user(name, PASSWORD, "viewer")


def test_a_name_is_given_once(access: Access) -> None:
    access.add_user("ada", PASSWORD, "viewer")
    with pytest.raises(AccessRefused, match="already") as caught:
        access.add_user("ada", OTHER, "admin")
    assert caught.value.reason is Refusal.TAKEN
    assert access.authenticate("ada", OTHER) is None


def test_a_role_that_there_is_not_is_refused(access: Access) -> None:
    with pytest.raises(PolicyError, match="'king' is no role; write one of viewer, operator, admin"):
        access.add_user("ada", PASSWORD, "king")


def test_users_are_listed_by_name(access: Access) -> None:
    for name in ("carol", "ada", "bob"):
        access.add_user(name, PASSWORD, "viewer")
    assert [user.name for user in access.users()] == ["ada", "bob", "carol"]


def test_another_password_replaces_the_old_one(access: Access, clock: ManualClock) -> None:
    before = access.add_user("ada", PASSWORD, "viewer")
    clock.advance(5)
    after = access.set_password("ada", OTHER, by="root")
    assert (after.password_changed_at - before.password_changed_at).total_seconds() == 5
    assert access.authenticate("ada", PASSWORD) is None
    assert access.authenticate("ada", OTHER) is not None


def test_who_is_disabled_cannot_sign_in_until_enabled(access: Access) -> None:
    access.add_user("ada", PASSWORD, "viewer")
    assert access.disable("ada").is_disabled
    assert access.authenticate("ada", PASSWORD) is None
    assert not access.enable("ada").is_disabled
    assert access.authenticate("ada", PASSWORD) is not None


def test_an_unknown_user_cannot_be_changed(access: Access) -> None:
    for act in (access.disable, access.enable, access.remove_user):
        with pytest.raises(AccessRefused, match="there is no user 'ada'") as caught:
            act("ada")
        assert caught.value.reason is Refusal.UNKNOWN


def test_the_last_admin_stays_while_there_are_others(access: Access) -> None:
    access.add_user("ada", PASSWORD, "admin")
    access.add_user("bob", PASSWORD, "viewer")
    access.add_user("carol", PASSWORD, "admin")
    access.disable("carol")
    for act in (access.disable, access.remove_user, lambda name: access.set_role(name, "operator")):
        with pytest.raises(AccessRefused, match="'ada' is the last admin") as caught:
            act("ada")
        assert caught.value.reason is Refusal.LAST_ADMIN
    assert access.authenticate("ada", PASSWORD) is not None
    access.enable("carol")
    access.set_role("ada", "operator")
    access.disable("carol", force=True)


def test_the_only_user_may_go(access: Access) -> None:
    access.add_user("ada", PASSWORD, "admin")
    assert access.has_accounts
    access.remove_user("ada")
    assert access.users() == []
    assert not access.has_accounts


def test_two_admins_who_remove_each_other_at_once_leave_one(store: Store, access: Access) -> None:
    access.add_user("zoe", PASSWORD, "viewer")
    for _ in range(5):
        for name in ("ada", "bob"):
            if access.user(name) is None:
                access.add_user(name, PASSWORD, "admin")
        start = threading.Barrier(2)
        refused: list[str] = []

        def remove(name: str, start: threading.Barrier = start, refused: list[str] = refused) -> None:
            start.wait()
            try:
                access.remove_user(name)
            except AccessRefused:
                refused.append(name)

        threads = [threading.Thread(target=remove, args=(name,)) for name in ("ada", "bob")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(refused) == 1
        assert [user.name for user in access.users() if user.role is Role.ADMIN] == refused


def test_after_many_wrong_passwords_a_name_has_to_wait_and_success_is_forgiven(
    access: Access, clock: ManualClock
) -> None:
    access.add_user("ada", PASSWORD, "viewer")
    rate, burst = PER_NAME
    for _ in range(3 * burst):
        assert access.authenticate("ada", PASSWORD) is not None
    for _ in range(burst):
        assert access.authenticate("ada", OTHER) is None
    with pytest.raises(RateLimited) as caught:
        access.authenticate("ada", PASSWORD)  # who guesses learns nothing more
    assert caught.value.retry_after == pytest.approx(1 / rate)
    clock.advance(1 / rate)
    assert access.authenticate("ada", PASSWORD) is not None
    assert access.authenticate("ada", PASSWORD) is not None


def test_names_that_nobody_has_wait_like_any_other(access: Access) -> None:
    for _ in range(PER_NAME[1]):
        assert access.authenticate("nobody", OTHER) is None
    with pytest.raises(RateLimited):
        access.authenticate("nobody", OTHER)


def test_an_address_that_tries_many_names_has_to_wait_and_others_do_not(access: Access, clock: ManualClock) -> None:
    access.add_user("ada", PASSWORD, "viewer")
    rate, burst = PER_ADDRESS
    for at in range(burst):
        assert access.authenticate(f"user{at}", OTHER, address="203.0.113.7") is None
    with pytest.raises(RateLimited) as caught:
        access.authenticate("ada", PASSWORD, address="203.0.113.7")
    assert caught.value.retry_after == pytest.approx(1 / rate)
    assert access.authenticate("ada", PASSWORD, address="203.0.113.8") is not None


def test_another_address_of_the_same_network_is_no_new_beginning(access: Access) -> None:
    for at in range(PER_ADDRESS[1]):
        assert access.authenticate(f"user{at}", OTHER, address=f"2606:2800:220:1::{at}") is None
    with pytest.raises(RateLimited):
        access.authenticate("ada", PASSWORD, address="2606:2800:220:1:ffff::1")
    assert access.authenticate("ada", PASSWORD, address="2606:2800:220:2::1") is None


def test_a_new_password_lets_a_throttled_name_in(access: Access) -> None:
    access.add_user("ada", PASSWORD, "viewer")
    for _ in range(PER_NAME[1]):
        access.authenticate("ada", OTHER)
    access.set_password("ada", OTHER)
    assert access.authenticate("ada", OTHER) is not None


def test_a_hash_of_another_price_is_renewed_at_the_next_sign_in(access: Access, store: Store) -> None:
    access.add_user("ada", PASSWORD, "viewer")
    dearer = Access(store, passwords=Passwords(time_cost=2, memory_kib=16, lanes=1))
    assert dearer.authenticate("ada", PASSWORD) is not None
    assert "t=2" in store.page(USER)[0].password
    assert access.authenticate("ada", PASSWORD) is not None


def test_unknown_names_cost_as_much_as_known_ones() -> None:
    """Counted, not timed: either way argon2 is asked once, at the same price."""
    passwords = Passwords(time_cost=1, memory_kib=8, lanes=1)
    known, hasher = passwords.hash(PASSWORD), passwords._hasher
    asked: list[str] = []

    class Counting:
        hash = staticmethod(hasher.hash)

        def verify(self, hashed: str, given: str) -> bool:
            asked.append(hashed.rpartition("$")[0].rpartition("$")[0])
            return bool(hasher.verify(hashed, given))

    passwords.__dict__["_hasher"] = Counting()
    for stored in (known, None):
        assert not passwords.matches(stored, OTHER)
    assert not passwords.matches(None, PASSWORD)
    assert asked == ["$argon2id$v=19$m=8,t=1,p=1"] * 3


def test_a_damaged_hash_matches_nothing() -> None:
    assert not CHEAP.matches("no hash", PASSWORD)
    assert not CHEAP.matches("", "")


def test_what_happens_is_told_without_what_was_typed_for_a_name(access: Access, hub: Hub) -> None:
    told: list[GuardEvent] = []
    hub.register(told.append)
    access.add_user("ada", PASSWORD, "viewer", by="root")
    access.authenticate("ada", PASSWORD, address="203.0.113.7")
    access.authenticate("ada", OTHER)
    access.authenticate("my-secret-in-the-wrong-field", OTHER)
    access.disable("ada", by="root")
    access.authenticate("ada", PASSWORD)
    tries = [(e.operation_key, e.is_granted, e.reason) for e in told if isinstance(e, SignInTried)]
    assert tries == [
        ("ada", True, None),
        ("ada", False, "wrong name or password"),
        ("unknown", False, "wrong name or password"),
        ("ada", False, "disabled"),
    ]
    assert [(e.operation_key, e.what, e.by) for e in told if isinstance(e, AccountChanged)] == [
        ("ada", "added", "root"), ("ada", "disabled", "root"),
    ]  # fmt: skip
    assert "my-secret" not in str([event.as_dict() for event in told])


def test_accounts_outlive_the_process_that_made_them(tmp_path: Path) -> None:
    with fresh_place("sqlite", tmp_path, KINDS) as place:
        for turn in range(2):
            store = place.open()
            access = Access(store, passwords=CHEAP)
            if turn == 0:
                access.add_user("ada", PASSWORD, "viewer")
            assert access.authenticate("ada", PASSWORD) is not None
            store.close()
