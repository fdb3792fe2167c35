"""Ids of workflows, stages and tasks: they sort in the order in which a process makes them."""

from __future__ import annotations

from holdfast.core.clock import SYSTEM_CLOCK, Clock
from holdfast.store.codec import micros
from holdfast.store.ids import new_record_id


def new_id(clock: Clock = SYSTEM_CLOCK) -> str:
    """The id of something that is made now."""
    return new_record_id(micros(clock.wall()))
