"""Rights: what no pattern grants is denied."""

from __future__ import annotations

import pytest

from holdfast.access.rights import ACTS, RESOURCES, RIGHTS, ROLES, Identity, Role, check_scopes, covers, grants
from holdfast.errors import PolicyError


def test_a_viewer_reads_an_operator_also_operates_and_an_admin_does_everything() -> None:
    may = {role: {right for right in RIGHTS if grants(ROLES[role], right)} for role in Role}
    assert may[Role.VIEWER] == {f"{one}:read" for one in RESOURCES}
    assert may[Role.OPERATOR] == {f"{one}:{act}" for one in RESOURCES for act in ("read", "operate")}
    assert may[Role.ADMIN] == set(RIGHTS)


def test_nobody_without_scopes_may_do_anything() -> None:
    assert Identity("nobody", frozenset(), "token").rights() == []


@pytest.mark.parametrize(
    ("scope", "allowed", "denied"),
    [
        ("letters:read", "letters:read", "letters:operate"),
        ("letters:*", "letters:reveal", "outbox:read"),
        ("*:read", "audit:read", "audit:admin"),
        ("*:*", "access:admin", "nothing"),
    ],
)
def test_a_scope_grants_what_its_pattern_says(scope: str, allowed: str, denied: str) -> None:
    assert grants([scope], allowed)
    assert denied == "nothing" or not grants([scope], denied)


@pytest.mark.parametrize("scope", ["", "letters", "letters:fly", "ships:read", "Letters:read", "letters:read\n", "*"])
def test_a_scope_that_can_grant_nothing_is_refused(scope: str) -> None:
    with pytest.raises(PolicyError, match="is no scope"):
        check_scopes([scope])


def test_no_scope_at_all_is_refused() -> None:
    with pytest.raises(PolicyError, match="no scope is given"):
        check_scopes([])


def test_a_pattern_is_covered_only_by_one_as_wide() -> None:
    every = [f"{one}:{act}" for one in RESOURCES for act in ACTS]
    assert covers(["*:read"], "letters:read")
    assert covers(["letters:*"], "letters:*")
    assert not covers(["letters:*"], "*:read")
    assert not covers(["*:read"], "letters:*")
    assert not covers(every, "*:read")  # it would also grant what is still to be invented
