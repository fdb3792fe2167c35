"""`holdfast config`: the settings of holdfast.toml and the environment."""

from __future__ import annotations

from typing import Any

import click
from pydantic import SecretStr

from holdfast.cli.filters import json_option
from holdfast.cli.output import Column, document, say, table
from holdfast.cli.session import settings
from holdfast.core.redact import MASK


@click.group()
def config() -> None:
    """Settings: what they are, and where they come from.

    They are read from holdfast.toml in the working folder, or from the file that HOLDFAST_CONFIG names. A variable of
    the environment goes before it (HOLDFAST_URL, HOLDFAST_CAPACITY__TOTAL), and what a program says goes before both.
    """


@config.command()
@click.option("--all", "everything", is_flag=True, help="Also what nobody has set.")
@json_option
def show(everything: bool, as_json: bool) -> None:
    """Show the settings, without secrets; exit code 2 if one cannot be."""
    from holdfast.config import DEFAULT, file_path

    found = settings()
    rows = [origin for origin in found.origins() if everything or as_json or origin.origin != DEFAULT]
    if as_json:
        listed = [{"name": row.name, "value": _plain(row.value), "origin": row.origin} for row in rows]
        document({"file": None if file_path() is None else str(file_path()), "settings": listed})
        return
    say(f"file: {file_path() or 'none; holdfast.toml is not here, and HOLDFAST_CONFIG names none'}")
    if not rows:
        say("nothing is set; --all shows the defaults")
        return
    table((Column("SETTING"), Column("VALUE", gives=True), Column("FROM")), [_row(row) for row in rows])


def _row(origin: Any) -> tuple[str, str, str]:
    return origin.name, _text(_plain(origin.value)), origin.origin


def _plain(value: Any) -> Any:
    return MASK if isinstance(value, SecretStr) else value


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_text(one)}" for name, one in value.items())
    if isinstance(value, list):
        return "; ".join(map(_text, value))
    return "" if value is None else str(value)
