"""Users and tokens on the screen."""

from __future__ import annotations

import re

from playwright.sync_api import Page, expect

from holdfast.access.rights import Role
from tests.console.acts import acts
from tests.console.holding import PASSWORD


def row(page: Page, name: str):
    return page.get_by_role("row").filter(has_text=name)


def toast(page: Page, text: str) -> None:
    expect(page.locator(".toasts")).to_contain_text(text)


@acts(
    "POST /access/users/{name}",
    *(f"POST /access/users/{{name}}/{verb}" for verb in ("role", "password", "disable", "enable", "remove")),
)
def test_a_user_is_added_changed_disabled_and_removed(hold, visit_open):
    hold.access.add_user("root", PASSWORD, Role.ADMIN, by="test")
    page = visit_open("/access")
    page.get_by_role("button", name="Add user").click()
    asked = page.get_by_role("dialog")
    asked.get_by_label("Name").fill("bea")
    asked.get_by_label("Password").fill(PASSWORD)
    asked.get_by_label("Role").select_option("viewer")
    page.get_by_label("Reason").fill("she is on call")
    asked.get_by_role("button", name="Add user").click()
    expect(row(page, "bea")).to_contain_text("viewer")
    assert hold.access.authenticate("bea", PASSWORD) is not None

    page.get_by_role("button", name="Role of bea").click()
    page.get_by_role("dialog").get_by_label("Role", exact=True).select_option("operator")
    page.get_by_role("button", name="Change role").click()
    expect(row(page, "bea")).to_contain_text("operator")

    page.get_by_role("button", name="Password of bea").click()
    page.get_by_role("dialog").get_by_label("Password").fill("another long password")
    page.get_by_role("button", name="Set password").click()
    toast(page, "bea has a new password")
    assert hold.access.authenticate("bea", "another long password") is not None

    page.get_by_role("button", name="Disable bea").click()
    page.get_by_role("dialog").get_by_role("button", name="Disable").click()
    expect(row(page, "bea")).to_contain_text("disabled")
    page.get_by_role("button", name="Enable bea").click()
    expect(row(page, "bea")).to_contain_text("enabled")

    page.get_by_role("button", name="Remove bea").click()
    page.get_by_role("dialog").get_by_role("button", name="Remove").click()
    expect(row(page, "bea")).to_have_count(0)
    assert [user.name for user in hold.access.users()] == ["root"]


def test_the_last_admin_stays_unless_somebody_insists(hold, visit_open):
    hold.access.add_user("root", PASSWORD, Role.ADMIN, by="test")
    hold.access.add_user("bea", PASSWORD, Role.VIEWER, by="test")
    visit_open.allows(409)
    page = visit_open("/access")
    page.get_by_role("button", name="Remove root").click()
    page.get_by_role("dialog").get_by_role("button", name="Remove").click()
    toast(page, "root")
    expect(row(page, "root")).to_have_count(1)
    page.get_by_role("button", name="Remove root").click()
    page.get_by_label("Also if this is the last admin").check()
    page.get_by_role("dialog").get_by_role("button", name="Remove").click()
    expect(row(page, "root")).to_have_count(0)


def test_a_short_password_is_refused_before_anything_is_sent(hold, visit_open):
    page = visit_open("/access")
    page.get_by_role("button", name="Add user").click()
    page.get_by_label("Name").fill("bea")
    page.get_by_label("Password").press_sequentially("short")
    page.get_by_role("dialog").get_by_role("button", name="Add user").click()
    expect(page.get_by_role("dialog")).to_be_visible()
    assert hold.access.users() == []


@acts("POST /access/tokens", "POST /access/tokens/{id}/revoke")
def test_a_token_is_shown_once_works_and_is_revoked(hold, visit_open):
    page = visit_open("/access?tab=tokens")
    page.get_by_role("button", name="New token").click()
    page.get_by_label("Name").fill("nightly")
    page.get_by_label("May").select_option("operator")
    page.get_by_role("button", name="Make token").click()
    secret = page.locator("[data-secret]").inner_text()
    assert secret.startswith("hf_")
    identity = hold.access.identify_token(secret)
    assert identity is not None
    assert identity.may("letters:operate")
    page.get_by_role("button", name="I have it").click()
    expect(page.get_by_text(secret)).to_have_count(0)

    expect(row(page, "nightly")).to_contain_text("active")
    page.get_by_role("button", name="Revoke nightly").click()
    page.get_by_role("dialog").get_by_role("button", name="Revoke").click()
    expect(row(page, "nightly")).to_contain_text("revoked")
    assert hold.access.identify_token(secret) is None


def test_a_token_has_only_what_is_ticked(hold, visit_open):
    page = visit_open("/access?tab=tokens")
    page.get_by_role("button", name="New token").click()
    page.get_by_label("Name").fill("reader")
    page.get_by_label("May").select_option("only what is ticked")
    page.get_by_label("letters:read").check()
    page.get_by_label("Works").select_option("for ever")
    page.get_by_role("button", name="Make token").click()
    identity = hold.access.identify_token(page.locator("[data-secret]").inner_text())
    assert identity is not None
    assert identity.rights() == ["letters:read"]


def test_the_choice_of_the_tab_is_in_the_address(visit_open):
    page = visit_open("/access")
    page.get_by_role("tab", name=re.compile("Tokens")).click()
    expect(page).to_have_url(f"{visit_open.url}/access?tab=tokens")
    page.reload()
    expect(page.get_by_role("button", name="New token")).to_be_visible()
    page.get_by_role("tab", name=re.compile("Tokens")).press("ArrowLeft")
    expect(page).to_have_url(f"{visit_open.url}/access")
