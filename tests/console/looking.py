"""Whether everybody can use a page: axe's rules, by day and by night."""

from __future__ import annotations

from typing import Any, Final

from playwright.sync_api import Page

from tests.console.building import CONSOLE
from tests.console.visiting import Visit

AXE: Final = CONSOLE / "node_modules" / "axe-core" / "axe.min.js"
SERIOUS: Final = ("serious", "critical")


def looked_at(visit: Visit) -> Page:
    """A window in which axe is. The policy would refuse it; what it looks at is the same."""
    page = visit.window(bypass_csp=True)
    page.add_init_script(path=AXE)
    return page


def shade(page: Page, name: str) -> None:
    """Let day or night fall, and wait until the page is drawn in its colours."""
    page.emulate_media(color_scheme="dark" if name == "dark" else "light", reduced_motion="reduce")
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


def in_both_shades(page: Page, where: str) -> list[str]:
    """What axe finds; in the dark only the colours are different."""
    shade(page, "dark")
    dark = findings(page, "color-contrast")
    shade(page, "light")
    return [f"{where}: {one}" for one in (*dark, *findings(page))]


def findings(page: Page, *only: str) -> list[str]:
    """What axe finds that keeps somebody from using the page: by all of its rules, or by some."""
    options = {"resultTypes": ["violations"], **({"runOnly": list(only)} if only else {})}
    found: dict[str, Any] = page.evaluate("(options) => axe.run(document, options)", options)
    return [
        f"{one['id']} ({one['impact']}): {one['help']}: {node['html'][:200]} {node.get('failureSummary', '')}"
        for one in found["violations"]
        if one["impact"] in SERIOUS
        for node in one["nodes"][:3]
    ]
