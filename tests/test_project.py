"""What the package promises to those who install it or clone it."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = ["sql", "postgres", "redis", "server", "cli", "nats", "rabbitmq", "kafka", "otel", "prometheus", "all"]


@pytest.mark.parametrize("extra", EXTRAS)
def test_a_promised_extra_can_be_installed(extra):
    assert PROJECT["optional-dependencies"][extra]


def test_all_means_every_extra_but_the_developers():
    extras = PROJECT["optional-dependencies"]
    [everything] = extras["all"]
    assert set(re.findall(r"\w+", everything)) - {"holdfast"} == set(extras) - {"all", "dev"}


def test_guards_need_pydantic_and_nothing_else():
    assert [re.match(r"[\w-]+", needed).group() for needed in PROJECT["dependencies"]] == ["pydantic"]


def test_the_package_is_typed_and_says_its_licence():
    assert (ROOT / "src/holdfast/py.typed").exists()
    assert PROJECT["license"] == "Apache-2.0"
    assert PROJECT["requires-python"] == ">=3.11"


@pytest.mark.parametrize("target", ["demo", "test", "check", "bench", "docs", "clean"])
def test_every_promised_target_is_shown_by_make_help(target):
    makefile = (ROOT / "Makefile").read_text()
    assert re.search(rf"^{target}:.*## \S", makefile, re.MULTILINE)
    assert re.search(rf"^\.PHONY:.*\b{target}\b", makefile, re.MULTILINE)
