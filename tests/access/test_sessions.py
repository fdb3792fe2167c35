"""Sessions: they end when they should, and at once when their user may no longer be who they were."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from holdfast.access.access import Access
from holdfast.access.records import SESSION
from holdfast.access.refusals import AccessRefused
from holdfast.store.port import Insert, Store
from holdfast.testing.clock import ManualClock
from tests.access.conftest import CHEAP

PASSWORD = "correct horse battery"


@pytest.fixture(autouse=True)
def users(access: Access) -> None:
    access.add_user("root", PASSWORD, "admin")
    access.add_user("ada", PASSWORD, "operator")


def sign_in(access: Access, name: str = "ada") -> str:
    begun = access.sign_in(name, PASSWORD)
    assert begun is not None
    return begun[0]


def test_who_signs_in_gets_a_session_that_tells_who_they_are(access: Access) -> None:
    begun = access.sign_in("ada", PASSWORD)
    assert begun is not None
    value, session = begun
    assert access.find_session(value) == session
    assert session.identity.name == "ada"
    assert session.expires_at - session.created_at == timedelta(hours=12)
    assert len(session.csrf) >= 32
    assert access.sign_in("ada", "wrong wrong wrong") is None


def test_the_cookie_is_kept_nowhere(access: Access, store: Store) -> None:
    value = sign_in(access)
    assert value not in str(store.page(SESSION))
    for wrong in ("", "x", value + "x", value[:-1], store.page(SESSION)[0].id, "\ud800", "x" * 10_000):
        assert access.find_session(wrong) is None


def test_every_session_has_its_own_csrf_value(access: Access) -> None:
    found = [access.find_session(sign_in(access)) for _ in range(2)]
    assert len({one.csrf for one in found if one is not None}) == 2


def test_a_session_ends_by_itself_and_is_swept(access: Access, clock: ManualClock, store: Store) -> None:
    old = sign_in(access)
    clock.advance(6 * 3600)
    young = sign_in(access)
    clock.advance(6 * 3600)
    assert access.find_session(old) is None
    assert access.find_session(young) is not None
    assert access.sweep() == 1
    assert len(store.page(SESSION)) == 1
    assert access.find_session(young) is not None


def test_who_signs_out_ends_that_session_only(access: Access) -> None:
    one, two = sign_in(access), sign_in(access)
    assert access.end_session(one)
    assert not access.end_session(one)
    assert access.find_session(one) is None
    assert access.find_session(two) is not None


ENDINGS: dict[str, Callable[[Access], object]] = {
    "a new password": lambda access: access.set_password("ada", PASSWORD),
    "another role": lambda access: access.set_role("ada", "viewer"),
    "disabling": lambda access: access.disable("ada"),
    "removal": lambda access: access.remove_user("ada"),
    "by hand": lambda access: access.end_sessions_of("ada"),
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_what_changes_a_user_ends_their_sessions_and_nobody_elses(access: Access, ending: str, store: Store) -> None:
    mine, others = [sign_in(access), sign_in(access)], sign_in(access, "root")
    ENDINGS[ending](access)
    assert [access.find_session(value) for value in mine] == [None, None]
    assert access.find_session(others) is not None
    assert len(store.page(SESSION)) == 1


def test_a_session_that_a_sweep_has_missed_is_over_all_the_same(
    store: Store, clock: ManualClock, access: Access
) -> None:
    """The record is judged by its user as it is now, so that nobody depends on every session being found."""
    value = sign_in(access)
    [record] = [one for one in store.page(SESSION) if one.user_name == "ada"]
    for change in (
        lambda: access.disable("ada"),
        lambda: (access.enable("ada"), access.set_password("ada", PASSWORD)),
        lambda: access.remove_user("ada"),
        lambda: (clock.advance(1), access.add_user("ada", PASSWORD, "admin")),
    ):
        change()
        store.sweep(SESSION, ())
        store.commit([Insert(SESSION, record._replace(version=1))])
        assert access.find_session(value) is None


def test_a_program_can_begin_a_session_for_whom_it_has_authenticated_itself(access: Access) -> None:
    value, _ = access.begin_session("ada")
    assert access.find_session(value) is not None
    access.disable("ada")
    for name in ("ada", "nobody"):
        with pytest.raises(AccessRefused, match="who may sign in"):
            access.begin_session(name)


def test_the_life_of_a_session_can_be_chosen(store: Store, clock: ManualClock) -> None:
    access = Access(store, clock, passwords=CHEAP, session_life=timedelta(minutes=5))
    value = sign_in(access)
    clock.advance(300)
    assert access.find_session(value) is None
