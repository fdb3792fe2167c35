"""A real browser on a real server: the console is built once, each test has a store and a window of its own.

    def test_a_letter_can_be_opened(hold, visit):
        file(hold)
        page = visit("/letters")
        page.get_by_role("link", name="payments").click()

A test of something that is done says what, and runs on SQLite and on PostgreSQL: `@acts("POST /letters/{id}/replay")`.
Whatever the browser complains of fails the test; `visit.allows(404)` names an answer that is meant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, BrowserContext, sync_playwright

from holdfast import Holdfast
from holdfast.server import console
from tests.console import building
from tests.console.acts import named
from tests.console.holding import holding
from tests.console.visiting import ARGUMENTS, CHROMIUM, Visit
from tests.server.running import Switchboard

Visiting = Callable[[str], Iterator[Visit]]


@pytest.fixture(scope="session")
def built() -> Iterator[None]:
    """The console, built of the sources as they are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(console, "STATIC", building.build())
        yield


# Not for the session: while Playwright runs, its event loop would be in the way of other folders' async tests.
@pytest.fixture(scope="package")
def browser(built: None) -> Iterator[Browser]:
    """Debian's Chromium."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture(scope="package")
def address() -> Iterator[Switchboard]:
    """Where each test's server is, one after another."""
    with Switchboard().open() as board:
        yield board


@pytest.fixture(scope="package")
def regular(browser: Browser) -> Iterator[BrowserContext]:
    """A browser that has been there before: it does not load and compile the console for every test."""
    context = browser.new_context()
    yield context
    context.close()


@pytest.fixture
def hold(request: pytest.FixtureRequest, tmp_path) -> Iterator[Holdfast]:
    """A Holdfast on an empty store: SQLite unless the test is marked with `both`."""
    with holding(getattr(request, "param", "sqlite"), tmp_path) as hold:
        yield hold


@pytest.fixture
def visit(hold: Holdfast, address: Switchboard, open_console: Visiting) -> Iterator[Visit]:
    """`visit("/letters")` opens a page of the console over `hold`."""
    with address.serves(hold) as url:
        yield from open_console(url)


@pytest.fixture
def visit_open(hold: Holdfast, address: Switchboard, open_console: Visiting) -> Iterator[Visit]:
    """The same where nobody has to sign in, although there are users."""
    with address.serves(hold, required=False) as url:
        yield from open_console(url)


@pytest.fixture
def open_console(browser: Browser, regular: BrowserContext, request: pytest.FixtureRequest) -> Visiting:
    def visiting(url: str) -> Iterator[Visit]:
        visit = Visit(browser, url, regular)
        yield visit
        visit.end()
        assert named(request.node) <= visit.done, f"the test did not do {sorted(named(request.node) - visit.done)}"

    return visiting
