"""The store as it is found, and the machine."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from holdfast.core.redact import redact
from holdfast.doctor.rules import Finding, found
from holdfast.doctor.works import works_of
from holdfast.errors import SchemaError, StoreUnavailable

if TYPE_CHECKING:
    from holdfast.app import Holdfast

SKEW_S: Final = 5.0


def look_at_store(hold: Holdfast) -> Iterator[Finding]:
    """Whether it is there, current, durable and of the same time."""
    where = f"store {hold.store.url}"
    try:
        hold.letters.count_all()  # a ping would not look at the tables
        skew = hold.store.now() / 1e6 - time.time()
    except SchemaError as error:
        yield found("old-schema", where, redact(str(error)), "run holdfast db upgrade")
        return
    except StoreUnavailable as error:
        yield found("store-away", where, redact(str(error)), "check the address, and that the server runs")
        return
    if abs(skew) > SKEW_S:
        ahead = "ahead of" if skew > 0 else "behind"
        yield found(
            "clock-skew", where, f"its clock is {abs(skew):.0f} s {ahead} this host's", "synchronise both (NTP)"
        )
    if urlsplit(hold.store.url).scheme == "memory":
        fix = "use sqlite:///holdfast.db, postgresql://… or redis://…"
        yield found("forgets", where, "everything is lost when the process ends", fix)
    durability = getattr(hold.store, "durability", None)
    for warning in () if durability is None else durability().warnings:
        what, _, fix = warning.partition("; ")
        yield found("not-durable", where, what, fix or "see the store's guarantees")


def look_at_machine(hold: Holdfast) -> Iterator[Finding]:
    """What the program needs beside the store."""
    spool = hold.letters.box.spool
    if spool is not None and not _writable(spool.path):
        what = "the folder does not exist or cannot be written to"
        yield found("spool-unwritable", f"spool {spool.path}", what, "create it, or name another file")
    works = works_of(hold)
    if works is not None and not works.audit.is_keyed:
        fix = "give Holdfast(audit_key=…), or set HOLDFAST_AUDIT_KEY"
        yield found("unkeyed-trail", "audit trail", "its hashes are made without a key", fix)


def _writable(path: Path) -> bool:
    place = path if path.exists() else path.parent
    return place.exists() and os.access(place, os.W_OK)
