"""Windows onto the console, and everything that a browser may complain of in them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final
from urllib.parse import urlsplit

from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Dialog,
    Page,
    Request,
    Response,
    ViewportSize,
    expect,
)

from tests.console.acts import route_of

CHROMIUM: Final = "/usr/bin/chromium"
ARGUMENTS: Final = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
SHADES: Final = ("light", "dark")
WIDE: Final[ViewportSize] = {"width": 1280, "height": 800}
NARROW: Final[ViewportSize] = {"width": 390, "height": 800}
_PATIENCE_MS: Final = 30_000  # a busy machine is slow; what is waited for comes at once on any other

expect.set_options(timeout=_PATIENCE_MS)


class Visit:
    """Opens pages of one server: `page = visit("/letters")`. `end` fails on what the browser complained of."""

    def __init__(self, browser: Browser, url: str, shared: BrowserContext | None = None) -> None:
        self.url = url
        self.complaints: list[str] = []
        self.done: set[str] = set()
        """The changes that were asked for, with success: `POST /letters/{id}/replay`."""
        self._browser = browser
        self._shared = shared
        self._pages: list[Page] = []
        self._contexts: list[BrowserContext] = []
        self._allowed: set[int] = set()

    def __call__(self, path: str = "/", **options: Any) -> Page:
        """A page in a new window, once it shows its heading and what it has asked for first."""
        page = self.window(**options)
        page.goto(self.url + path)
        page.locator("h1, .state h2").first.wait_for()
        expect(page.locator(".skeleton")).to_have_count(0)
        return page

    def window(self, *, shade: str = "light", viewport: ViewportSize = WIDE, own: bool = False, **options: Any) -> Page:
        """An empty window that is watched.

        It is one of a browser that has been here before, which is far cheaper, unless it is to be its `own`.
        """
        if self._shared is None or own or options:
            context = self._browser.new_context(**options)
            self._contexts.append(context)
        else:
            context = self._shared
        context.set_default_timeout(_PATIENCE_MS)
        page = context.new_page()
        self._pages.append(page)
        page.set_viewport_size(viewport)
        page.emulate_media(color_scheme="dark" if shade == "dark" else "light", reduced_motion="reduce")
        page.on("console", self._logged)
        page.on("pageerror", lambda error: self.complaints.append(f"exception: {error}"))
        page.on("dialog", self._asked)
        page.on("requestfailed", self._failed)
        page.on("response", self._answered)
        return page

    def allows(self, *statuses: int) -> None:
        """These answers are part of the test."""
        self._allowed |= set(statuses)

    def end(self) -> None:
        """Close every window, leave nothing behind, and say what was wrong in them."""
        for page in self._pages:
            if page.url.startswith(self.url):
                page.evaluate("localStorage.clear()")
            page.close()
        for context in self._contexts:
            context.close()
        if self._shared is not None:
            self._shared.clear_cookies()
        assert not self.complaints, "the browser complained:\n" + "\n".join(self.complaints)

    def _logged(self, message: ConsoleMessage) -> None:
        if message.type not in ("error", "warning"):
            return
        # Chromium logs every answer that is no success once more; `_answered` has judged it.
        if not message.text.startswith("Failed to load resource"):
            self.complaints.append(f"console {message.type}: {message.text} ({message.location.get('url')})")

    def _asked(self, dialog: Dialog) -> None:
        self.complaints.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _failed(self, request: Request) -> None:
        # A page that is left ends its questions and its stream.
        if request.failure != "net::ERR_ABORTED":
            self.complaints.append(f"failed: {request.method} {request.url}: {request.failure}")

    def _answered(self, response: Response) -> None:
        if response.status >= 400 and response.status not in self._allowed:
            self.complaints.append(f"{response.status}: {response.request.method} {response.url}")
        if response.ok and response.url.startswith(self.url):
            path = urlsplit(response.url.removeprefix(self.url)).path
            self.done |= {one for one in [route_of(response.request.method, path)] if one}


def sticks_out(page: Page) -> int:
    """By how many pixels the page is wider than its window."""
    return int(page.evaluate("document.scrollingElement.scrollWidth - document.scrollingElement.clientWidth"))


def settled(page: Page) -> None:
    """Wait until the page shows what it has asked for."""
    page.locator("main > *").first.wait_for()
    expect(page.locator(".skeleton")).to_have_count(0)


def comes_true(page: Page, holds: Callable[[], bool]) -> None:
    """Wait until it holds: for what `expect` has no word for."""
    for _ in range(_PATIENCE_MS // 50):
        if holds():
            return
        page.wait_for_timeout(50)
    raise AssertionError("it did not come true")
