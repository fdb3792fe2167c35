"""The server's side of the console: its page, its files, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from holdfast.server import console

PAGE = """<!doctype html><meta name="holdfast-base" content="/" /><link rel="icon" href="./icon.svg" />
<script type="module" src="./assets/index-1.js"></script>"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A build, and beside it something that is none of the browser's business."""
    (tmp_path / "secret.txt").write_text("secret")
    static = tmp_path / "static"
    (static / "assets").mkdir(parents=True)
    (static / "index.html").write_text(PAGE)
    (static / "icon.svg").write_text("<svg/>")
    (static / ".made-of").write_text("hash")
    (static / "assets" / "index-1.js").write_text("export {};\n" * 500)
    (static / "assets" / "index-1.css").write_text("a{}")
    return static


@pytest.fixture
def client(folder: Path) -> TestClient:
    return TestClient(_app(folder))


def _app(folder: Path) -> FastAPI:
    app = FastAPI()

    @app.get("/api/v1/health")
    def health() -> str:
        return "ok"

    console.install(app, folder)
    return app


@pytest.mark.parametrize("path", ["/", "/letters", "/letters/an.id.with.dots", "/guards/a%2Fb", "/index.html", "/x/y"])
def test_every_address_of_the_console_is_its_page(client, path):
    answer = client.get(path)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["cache-control"] == "no-cache"
    assert 'src="/assets/index-1.js"' in answer.text


def test_the_page_says_where_it_is_mounted(folder):
    outer = FastAPI()
    outer.mount("/ops/hold", _app(folder))
    text = TestClient(outer).get("/ops/hold/letters/7").text
    assert 'content="/ops/hold/"' in text
    assert 'src="/ops/hold/assets/index-1.js"' in text
    assert 'href="/ops/hold/icon.svg"' in text


def test_a_mount_path_cannot_break_out_of_the_page(folder):
    client = TestClient(_app(folder), root_path='/"><script>alert(1)</script>')
    assert "<script>alert" not in client.get("/letters").text


def test_a_page_that_has_not_changed_is_not_sent_again(client):
    tag = client.get("/letters").headers["etag"]
    answer = client.get("/overview", headers={"If-None-Match": f'W/{tag}, "other"'})
    assert (answer.status_code, answer.content) == (304, b"")


def test_files_are_kept_for_ever_and_packed_where_that_helps(client):
    script = client.get("/assets/index-1.js")
    assert script.headers["content-type"] == "text/javascript; charset=utf-8"
    assert "immutable" in script.headers["cache-control"]
    assert script.headers["content-encoding"] == "gzip"
    assert client.get("/assets/index-1.js", headers={"Accept-Encoding": "identity"}).text == script.text
    style = client.get("/assets/index-1.css")
    assert style.headers["content-type"] == "text/css; charset=utf-8"
    assert "content-encoding" not in style.headers
    assert client.get("/icon.svg").headers["content-type"] == "image/svg+xml"


@pytest.mark.parametrize(
    "path",
    [
        "/assets/../../secret.txt", "/assets/..%2f..%2fsecret.txt", "/%2e%2e/secret.txt", "/..%5csecret.txt",
        "/assets/%2e%2e/%2e%2e/secret.txt", "//secret.txt", "/assets//etc/passwd", "/.made-of", "/assets/",
        "/secret.txt",
    ],
)  # fmt: skip
def test_no_path_leads_out_of_the_build(client, path):
    answer = client.get(path)
    assert "secret" not in answer.text
    assert "root:" not in answer.text
    assert answer.text != "hash"


@pytest.mark.parametrize("path", ["/assets/gone-2.js", "/favicon.ico", "/api/v1/nothing", "/api", "/metrics"])
def test_what_is_no_page_is_not_answered_with_one(client, path):
    assert client.get(path).status_code == 404


def test_other_methods_are_not_the_consoles(client):
    assert client.post("/letters").status_code == 404
    assert client.post("/api/v1/health").status_code == 405
    assert client.head("/letters").status_code == 200


def test_without_a_build_it_says_how_to_make_one(tmp_path):
    answer = TestClient(_app(tmp_path / "nothing")).get("/letters")
    assert answer.status_code == 503
    assert "make console" in answer.text
    assert answer.headers["content-type"].startswith("text/plain")


def test_a_new_build_is_served_without_a_restart(folder, client):
    assert client.get("/assets/index-2.js").status_code == 404
    (folder / "assets" / "index-2.js").write_text("export {};")
    page = folder / "index.html"
    page.with_suffix(".new").write_text(PAGE.replace("index-1", "index-2"))
    page.with_suffix(".new").replace(page)
    assert "index-2.js" in client.get("/").text
    assert client.get("/assets/index-2.js").status_code == 200
