"""Takes the pictures of the documentation: the demo's shop, in the moments that are worth seeing.

    python console/screenshots.py [--into docs/assets] [--only overview]

Needs the built console, Playwright from PyPI and a Chromium (`--chromium`, or where Debian has it).
"""

from __future__ import annotations

import argparse
import json
import os
import pty
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from playwright.sync_api import Browser, Page, ViewportSize, sync_playwright

ROOT: Final = Path(__file__).resolve().parents[1]
SIZE: Final[ViewportSize] = {"width": 1280, "height": 800}
ARGUMENTS: Final = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
_PATIENCE_S: Final = 240.0
_LOOK_S: Final = 0.2
_DRAWN_MS: Final = 1500


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture: `when` names the page once the moment has come, and None before; charts want `after_s` of history."""

    name: str
    when: Callable[[Api], str | None]
    shades: Sequence[str] = ("light",)
    after_s: float = 0.0


class Api:
    """The demo's server."""

    def __init__(self, url: str) -> None:
        self.url = url

    def get(self, path: str) -> Any:
        """What it answers; None while it does not."""
        try:
            with urllib.request.urlopen(f"{self.url}/api/v1/{path}", timeout=10) as answer:
                return json.load(answer)
        except OSError:
            return None

    def items(self, path: str) -> list[dict[str, Any]]:
        """The items of a list."""
        found = self.get(path)
        return found["items"] if found else []


def during_the_outage(api: Api) -> str | None:
    """The overview while a breaker is open and letters wait."""
    is_open = any(one.get("state") == "open" for one in api.items("breakers"))
    return "/overview" if is_open and len(api.items("letters?status=pending&limit=20")) >= 3 else None


def letters(api: Api) -> str | None:
    """Letters that wait."""
    return "/letters" if len(api.items("letters?limit=20")) >= 8 else None


def a_letter(api: Api) -> str | None:
    """One letter."""
    found = api.items("letters?limit=1")
    return f"/letters/{found[0]['id']}" if found else None


def a_workflow(api: Api) -> str | None:
    """A workflow that has come some way."""
    found = [one for one in api.items("workflows?limit=20") if one["status"] in ("RUNNING", "SUCCEEDED")]
    return f"/workflows/{found[0]['id']}" if len(found) >= 3 else None


PICTURES: Final = (
    Picture("letters", letters),
    Picture("letter", a_letter, ("dark",)),
    Picture("guards", lambda api: "/guards"),
    Picture("workflow", a_workflow),
    Picture("outbox", lambda api: "/outbox" if api.items("outbox?limit=5") else None),
    Picture("overview", during_the_outage, ("light", "dark"), after_s=90),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Take them all."""
    parser = argparse.ArgumentParser(description="Take the pictures of the documentation.")
    parser.add_argument("--into", type=Path, default=ROOT / "docs" / "assets")
    parser.add_argument("--only", action="append", choices=[picture.name for picture in PICTURES])
    parser.add_argument("--chromium", default="/usr/bin/chromium")
    given = parser.parse_args(arguments)
    given.into.mkdir(parents=True, exist_ok=True)
    wanted = [picture for picture in PICTURES if given.only is None or picture.name in given.only]
    with demo() as url, sync_playwright() as playwright:
        begun = time.monotonic()
        browser = playwright.chromium.launch(executable_path=given.chromium, args=ARGUMENTS)
        for picture in wanted:
            time.sleep(max(0.0, begun + picture.after_s - time.monotonic()))
            path = _moment(picture, Api(url))
            for shade in picture.shades:
                _take(browser, url + path, shade, given.into / _name(picture, shade))
        browser.close()
    return 0


@contextmanager
def demo() -> Iterator[str]:
    """`holdfast demo` on a free port, in a terminal of its own so that it stays; its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ours, its = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "holdfast.demo", "--port", str(port)], cwd=ROOT, stdin=its, stdout=its, stderr=its
    )
    os.close(its)
    threading.Thread(target=_drain, args=(ours,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        os.close(ours)


def _drain(terminal: int) -> None:
    """Read what is told, or the demo would stop when the terminal is full."""
    try:
        while os.read(terminal, 65536):
            pass
    except OSError:
        pass  # the demo has ended


def _moment(picture: Picture, api: Api) -> str:
    end = time.monotonic() + _PATIENCE_S
    while time.monotonic() < end:
        path = picture.when(api) if api.get("health") else None
        if path is not None:
            return path
        time.sleep(_LOOK_S)
    raise SystemExit(f"{picture.name}: the moment did not come within {_PATIENCE_S:g} s")


def _take(browser: Browser, address: str, shade: str, into: Path) -> None:
    context = browser.new_context(viewport=SIZE, color_scheme="dark" if shade == "dark" else "light")
    page: Page = context.new_page()
    page.goto(address)
    page.locator("main > *").first.wait_for()
    page.wait_for_function("() => !document.querySelector('.skeleton')")
    page.wait_for_timeout(_DRAWN_MS)  # charts draw themselves once their code is there
    page.screenshot(path=into)
    context.close()
    sys.stdout.write(f"{into.name}: {into.stat().st_size // 1024} kB\n")


def _name(picture: Picture, shade: str) -> str:
    more = f"-{shade}" if len(picture.shades) > 1 else ""
    return f"console-{picture.name}{more}.png"


if __name__ == "__main__":
    sys.exit(main())
