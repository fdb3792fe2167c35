"""One id for everything that follows from one thing: a refused call, its dead letter, the replay, the entries, sagas
and workflows that come of it, their messages, and whatever a consumer does with those.

It is the id of the outermost guarded call, or of the `deadline` block around it. Work that nobody's call has caused is
its own cause: an outbox entry goes by its entry id, a workflow by its own, a letter that was filed by hand by the
letter's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from holdfast.core.clock import SYSTEM_CLOCK
from holdfast.core.context import (
    CURRENT,
    PARENT,
    Link,
    ResilienceContext,
    Scope,
    TypedKey,
    ambient_deadline,
    context_of,
    new_link,
    publish,
    withdraw,
)

CAUSATION: Final = TypedKey[str]("holdfast.causation_id")
"""The property that says what a call follows from; calls below inherit it."""
CAUSATION_HEADER: Final = "causation-id"
"""Its name among the headers of an outbox entry, and of the message that becomes of it."""
CAUSATION_FIELD: Final = "causation_id"
"""Its name in the metadata of letters, and in what is told of workflows."""


def causation_id() -> str | None:
    """The id of what the code that asks follows from; None outside of calls, replays, entries and tasks."""
    link = CURRENT.get()
    context = context_of(link)
    return None if context is None else context.get(CAUSATION) or _outermost(link)


def cause_of(context: ResilienceContext) -> str:
    """The id of what this call follows from: its own, when nothing is around it."""
    return context.get(CAUSATION) or _outermost(CURRENT.get()) or context.parent_call_id or context.call_id


def cause_in(headers: Mapping[str, str] | None) -> str | None:
    """The id that these headers carry, however they are written."""
    for name, value in (headers or {}).items():
        if name.lower() == CAUSATION_HEADER and value:
            return value
    return None


@contextmanager
def caused_by(origin: str | Mapping[str, str] | None) -> Iterator[str | None]:
    """Run a block as following from this id, or from the message with these headers: for consumers.

    Gives the id. Headers that carry none leave the block as it is.
    """
    found = origin if isinstance(origin, str) else cause_in(origin)
    if not found:
        yield None
        return
    around, outer = CURRENT.get(), context_of(CURRENT.get())
    if outer is None:
        made = ResilienceContext("", ambient_deadline(around, SYSTEM_CLOCK), properties={CAUSATION: found})
    else:
        made = outer.fork()
        made.set(CAUSATION, found)
    source = Scope(made.operation_key, made.clock)
    token = publish(new_link(source, around, made))
    try:
        yield found
    finally:
        withdraw(token)


def _outermost(link: Link | None) -> str | None:
    """The id of the outermost call around this link, or of the one that is known to have made that."""
    outermost = None
    while link is not None:
        outermost, link = link, link[PARENT]
    first = context_of(outermost)
    return None if first is None else first.parent_call_id or first.call_id
