"""What is around every screen: who is there, where one goes, and what is said when something is wrong."""

from __future__ import annotations

from fastapi import FastAPI
from playwright.sync_api import Page, expect

from holdfast import Holdfast
from holdfast.access.rights import Role
from holdfast.server.api import create_app
from tests.console.acts import acts
from tests.console.building import CONSOLE
from tests.console.holding import PASSWORD
from tests.console.registry import SCREENS
from tests.console.visiting import NARROW, Visit, settled, sticks_out
from tests.server.running import server_of, serving
from tests.server.served import file


def heading(page: Page, text: str) -> None:
    expect(page.get_by_role("heading", level=1)).to_have_text(text)


def sign_in(page: Page, name: str, password: str = PASSWORD) -> None:
    page.get_by_label("Name").fill(name)
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Sign in").click()


def test_every_folder_of_a_screen_is_in_the_registry_with_a_key_of_its_own():
    folders = {path.name for path in (CONSOLE / "src" / "screens").iterdir()}
    assert {screen.name for screen in SCREENS} == folders
    assert len({screen.key for screen in SCREENS}) == len(SCREENS)


def test_the_first_page_is_the_overview_and_it_is_live(visit):
    page = visit("/")
    expect(page).to_have_url(f"{visit.url}/overview")
    expect(page.locator("[data-live=live]")).to_be_visible()
    expect(page).to_have_title("Overview · Holdfast")


def test_g_and_a_letter_goes_to_a_screen(visit):
    page = visit("/doctor")
    for screen in SCREENS:
        page.keyboard.press("g")
        page.keyboard.press(screen.key)
        expect(page).to_have_url(f"{visit.url}/{screen.name}")
        expect(page).to_have_title(f"{screen.title} · Holdfast")


def test_a_key_soon_after_the_page_was_opened_is_not_the_second_of_a_pair(visit):
    page = visit.window()
    page.add_init_script("const now = performance.now.bind(performance); performance.now = () => now() / 1e6")
    page.goto(f"{visit.url}/letters")
    page.locator("h1, .state h2").first.wait_for()
    page.keyboard.press("p")
    page.keyboard.press("/")
    expect(page.get_by_role("combobox", name="Filter")).to_be_focused()
    expect(page).to_have_url(f"{visit.url}/letters")


def test_keys_are_explained_and_escape_closes(visit):
    page = visit("/access")
    page.keyboard.press("?")
    keys = page.get_by_role("dialog", name="Keys")
    expect(keys).to_be_visible()
    expect(keys.get_by_text("Workflows")).to_be_visible()
    page.keyboard.press("Escape")
    expect(keys).to_be_hidden()


def test_one_jumps_by_typing_a_part_of_the_name(visit):
    page = visit("/access")
    page.keyboard.press("Control+k")
    page.get_by_role("combobox", name="A screen, or an id").fill("work")
    expect(page.get_by_role("option")).to_have_count(2)
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page).to_have_url(f"{visit.url}/workers")


def test_a_pasted_id_leads_to_the_thing(hold, visit):
    (id,) = file(hold)
    page = visit("/access")
    page.get_by_role("button", name="Jump to").click()
    page.get_by_role("combobox", name="A screen, or an id").fill(id)
    page.get_by_role("option", name="Letters").click()
    expect(page).to_have_url(f"{visit.url}/letters/{id}")


def test_the_theme_is_the_systems_until_somebody_chooses(visit):
    page = visit("/access", shade="dark")
    background = "getComputedStyle(document.documentElement).backgroundColor"
    dark = page.evaluate(background)
    page.get_by_role("button", name="Theme: system").click()
    expect(page.get_by_role("button", name="Theme: light")).to_be_visible()
    light = page.evaluate(background)
    assert light != dark
    page.reload()
    expect(page.get_by_role("button", name="Theme: light")).to_be_visible()
    assert page.evaluate(background) == light


def test_an_address_that_leads_nowhere_says_so(visit):
    page = visit("/nonsense/of/some/kind")
    expect(page.get_by_role("heading", name="There is no such screen")).to_be_visible()
    page.get_by_role("link", name="Go to the overview").click()
    expect(page).to_have_title("Overview · Holdfast")


def test_a_thing_that_is_not_there_is_an_error_in_the_servers_words(visit):
    visit.allows(404)
    page = visit("/letters/nothing-of-that-name")
    expect(page.get_by_role("alert")).to_contain_text("nothing-of-that-name")
    expect(page.get_by_role("button", name="Try again")).to_be_visible()


def test_on_a_narrow_screen_the_navigation_opens_and_closes(visit):
    page = visit("/access", viewport=NARROW)
    navigation = page.get_by_role("navigation", name="Screens")
    expect(navigation).to_be_hidden()
    page.get_by_role("button", name="Navigation").click()
    expect(navigation).to_be_visible()
    navigation.get_by_role("link", name="Doctor").click()
    heading(page, "Doctor")
    expect(navigation).to_be_hidden()
    assert sticks_out(page) == 0


def test_the_keyboard_reaches_the_content_at_once(visit):
    page = visit("/access")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()


@acts("POST /session", "DELETE /session")
def test_whoever_is_not_known_signs_in_and_out(hold, visit):
    hold.access.add_user("ada", PASSWORD, Role.ADMIN, by="test")
    visit.allows(401)
    page = visit("/doctor")
    expect(page.get_by_role("heading", name="Sign in to Holdfast")).to_be_visible()
    sign_in(page, "ada", "not the password")
    expect(page.get_by_role("alert")).to_have_text("Name or password is wrong.")
    sign_in(page, "ada")
    heading(page, "Doctor")
    page.get_by_label("Signed in as ada").click()
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("heading", name="Sign in to Holdfast")).to_be_visible()
    page.reload()
    expect(page.get_by_role("heading", name="Sign in to Holdfast")).to_be_visible()


def test_a_session_that_ends_elsewhere_leads_back_to_the_door(hold, visit):
    hold.access.add_user("ada", PASSWORD, Role.ADMIN, by="test")
    visit.allows(401)
    page = visit("/doctor")
    sign_in(page, "ada")
    heading(page, "Doctor")
    hold.access.end_sessions_of("ada")
    page.keyboard.press("g")
    page.keyboard.press("l")
    expect(page.get_by_role("heading", name="Sign in to Holdfast")).to_be_visible()


@acts("POST /session/password")
def test_one_changes_ones_own_password(hold, visit):
    hold.access.add_user("ada", PASSWORD, Role.VIEWER, by="test")
    visit.allows(401)
    page = visit("/doctor")
    sign_in(page, "ada")
    page.get_by_label("Signed in as ada").click()
    page.get_by_role("button", name="Change password").click()
    page.get_by_label("Password now").fill(PASSWORD)
    page.get_by_label("New password").fill("another long password")
    page.get_by_role("dialog").get_by_role("button", name="Change password").click()
    sign_in(page, "ada", "another long password")
    heading(page, "Doctor")


def test_a_viewer_sees_buttons_that_say_why_they_do_nothing(hold, visit):
    hold.access.add_user("vera", PASSWORD, Role.VIEWER, by="test")
    visit.allows(401)
    page = visit("/access")
    sign_in(page, "vera")
    button = page.get_by_role("button", name="Add user")
    expect(button).to_have_attribute("aria-disabled", "true")
    expect(button).to_have_attribute("title", "vera may not do this: it needs the right access:admin.")
    button.click(force=True)
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_a_server_that_goes_away_is_told(hold, browser):
    with server_of(hold) as url:
        visit = Visit(browser, url)
        page = visit("/letters")
        expect(page.locator("[data-live=live]")).to_be_visible()
        page.context.set_offline(True)
        page.evaluate("window.dispatchEvent(new Event('offline'))")
    expect(page.locator("[data-live=lost]")).to_be_visible()
    visit.complaints.clear()
    visit.end()


def test_a_page_that_nobody_looks_at_asks_nothing_and_catches_up(hold, visit):
    page = visit.window(own=True)
    page.clock.install()
    page.goto(f"{visit.url}/overview")
    expect(page.get_by_role("heading", name="Nothing yet")).to_be_visible()
    expect(page.locator("[data-live=live]")).to_be_visible()
    settled(page)
    _hide(page, True)
    expect(page.locator("[data-live=resting]")).to_have_count(1)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    for domain in ("hidden.one", "hidden.two"):
        hold.letters.pause(domain, by="ops", reason="nobody looks")
    page.clock.run_for(60_000)
    assert asked == []
    _hide(page, False)
    told = page.get_by_role("list", name="Recent events").get_by_role("listitem")
    expect(told).to_have_count(2)
    expect(told.first).to_contain_text("hidden.two")
    assert [url for url in asked if "/events?last_event_id=" in url] != []


def test_what_happens_is_on_the_page_without_a_reload(hold, visit):
    page = visit("/letters")
    expect(page.locator("[data-live=live]")).to_be_visible()
    hold.letters.create_many([{"domain": "just.now", "failure_type": "X", "error_message": "x"}], wake=True)
    expect(page.get_by_text("just.now").first).to_be_visible()


def test_what_nobody_tells_of_is_there_a_little_later(hold, visit):
    page = visit("/letters")
    expect(page.locator("[data-live=live]")).to_be_visible()
    file(hold, domain="in.silence")
    expect(page.get_by_text("in.silence").first).to_be_visible()


def _hide(page: Page, is_hidden: bool) -> None:
    page.evaluate(
        """(hidden) => {
            const says = { hidden, visibilityState: hidden ? "hidden" : "visible" };
            for (const [name, value] of Object.entries(says))
                Object.defineProperty(document, name, { configurable: true, get: () => value });
            document.dispatchEvent(new Event("visibilitychange"));
        }""",
        is_hidden,
    )


def test_it_works_below_a_path_of_another_application(hold: Holdfast, browser):
    outer = FastAPI()
    outer.mount("/ops/holdfast", create_app(hold))
    (id,) = file(hold)
    with serving(outer) as url:
        visit = Visit(browser, f"{url}/ops/holdfast")
        page = visit("/letters")
        page.get_by_role("table").get_by_role("link").first.click()
        expect(page).to_have_url(f"{visit.url}/letters/{id}")
        page.reload()
        expect(page.get_by_text("ConnectionError: refused").first).to_be_visible()
        visit.end()
