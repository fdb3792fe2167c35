"""The picture of the demo's first chapter."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from holdfast.demo.twice.half import Half
from holdfast.demo.twice.picture import draw
from holdfast.demo.twice.run import run_half

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def halves() -> tuple[Half, Half]:
    return run_half(guarded=False, seed=7, seconds=10), run_half(guarded=True, seed=7, seconds=10)


def test_the_picture_is_well_formed_and_has_every_series(halves: tuple[Half, Half]) -> None:
    root = ElementTree.fromstring(draw(*halves))
    series = {element.get("id"): element.get("points", "") for element in root.iter() if element.get("id")}
    for panel in ("answered", "latency", "load", "orders"):
        for half in ("bare", "guarded"):
            assert len(series[f"{panel}-{half}"].split()) == 80  # two ends of 40 slices
    assert series["fallback"]
    assert series["letters"]
    states = {element.get("data-state") for element in root.iter(f"{SVG}rect")}
    assert states >= {"closed", "open", "half_open"}


def test_the_picture_stays_inside_its_frame(halves: tuple[Half, Half]) -> None:
    root = ElementTree.fromstring(draw(*halves))
    width, height = float(root.get("width", 0)), float(root.get("height", 0))
    for element in root.iter():
        for point in element.get("points", "").split():
            x, y = map(float, point.split(","))
            assert 0 <= x <= width
            assert 0 <= y <= height
        assert float(element.get("x", 0)) + float(element.get("width", 0)) * (element is not root) <= width
        assert float(element.get("y", 0)) <= height


def test_the_picture_can_be_read_aloud_and_on_dark_pages(halves: tuple[Half, Half]) -> None:
    document = draw(*halves)
    root = ElementTree.fromstring(document)
    assert root.get("role") == "img"
    assert [element.tag for element in root][:2] == [f"{SVG}title", f"{SVG}desc"]
    assert "The guard answered" in (root[1].text or "")
    assert "prefers-color-scheme:dark" in document


def test_the_same_run_gives_the_same_picture(halves: tuple[Half, Half]) -> None:
    assert draw(*halves) == draw(*halves)
