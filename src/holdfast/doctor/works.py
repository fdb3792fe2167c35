"""The outbox and what belongs to it, for whoever looks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.errors import ConfigurationError, MissingExtra

if TYPE_CHECKING:
    from holdfast.app import Holdfast
    from holdfast.outbox.works import Works


def works_of(hold: Holdfast) -> Works | None:
    """The parts, where the store is a database that can have them."""
    try:
        return hold.works
    except (ConfigurationError, MissingExtra):
        return None
