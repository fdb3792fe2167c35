"""Everything that Holdfast keeps by the store's verbs. The tables of the outbox are ordinary ones."""

from __future__ import annotations

from typing import Any, Final

from holdfast.access.records import KINDS as ACCESS_KINDS
from holdfast.machine.breaker_record import BREAKER
from holdfast.machine.bulk import BULK
from holdfast.machine.dead_letter import LETTER, SUMMARY
from holdfast.machine.drain import DOMAIN
from holdfast.store.record import Kind
from holdfast.workflows.records import KINDS as WORKFLOW_KINDS

KINDS: Final[tuple[Kind[Any], ...]] = (LETTER, SUMMARY, BULK, DOMAIN, BREAKER, *WORKFLOW_KINDS, *ACCESS_KINDS)
