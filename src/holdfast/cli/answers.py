"""Showing what the API answers: pages as tables, times and numbers in documents as people read them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import click

from holdfast.cli.exits import WrongUsage
from holdfast.cli.output import Column, document, note, table
from holdfast.cli.session import Session

Document = dict[str, Any]
NEEDS_SERVER: Final = (
    "{} in the memory of a process, and this one has only just begun: ask the server of the program, --url http://…"
)

reason_option: Final = click.option(
    "--reason", required=True, metavar="TEXT", help="Why; kept in the audit trail, and others will want to know."
)
may_reason_option: Final = click.option("--reason", default="", metavar="TEXT", help="Why; kept in the audit trail.")
server_reason_option: Final = click.option(
    "--reason", default="", metavar="TEXT", help="Why; a server keeps it in its audit trail."
)
limit_option: Final = click.option("--limit", type=click.IntRange(1), default=50, show_default=True, metavar="N")
after_option: Final = click.option(
    "--after", metavar="CURSOR", help="Go on where a page ended; that page names the cursor."
)


def listed(
    page: Document,
    columns: Sequence[Column],
    row: Callable[[Document], Sequence[Any]],
    as_json: bool,
    *,
    nothing: str,
    items: str = "items",
) -> None:
    """A page: the document as it is, or a table of it and how to go on."""
    if as_json:
        document(page)
        return
    if page[items]:
        table(columns, [row(one) for one in page[items]])
    else:
        note(nothing)
    if page.get("next") is not None:
        note(f"there are more: --after {page['next']}")


def server_only(session: Session, what: str) -> None:
    """Raises WrongUsage where this process would answer, which has none of it."""
    if session.remote is None:
        raise WrongUsage(NEEDS_SERVER.format(what))


def moment(text: str | None) -> datetime | None:
    """A time of a document."""
    return None if text is None else datetime.fromisoformat(text)


def seconds(value: float | None) -> str:
    """A length of time of a document: `250 ms`, `1.5 s`, `inf`inite as nothing."""
    if value is None:
        return ""
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.4g} s"


def percent(value: float | None) -> str:
    return "" if value is None else f"{value:.0%}"


def numbers(counted: Mapping[str, Any]) -> str:
    """`3 failed, 12 succeeded`: what there is of each."""
    return ", ".join(f"{number} {name}" for name, number in sorted(counted.items()) if number)
