"""What set a workflow off, and who holds it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from holdfast.workflows.documents import TIME, Form, read_document, write_document


@dataclass
class Trigger:
    """What set a workflow off. All of it is JSON."""

    type: str = "manual"
    user: str = "anonymous"
    parameters: dict[str, Any] = field(default_factory=dict)
    payload: dict[str, Any] = field(default_factory=dict)
    artifacts: list[Any] = field(default_factory=list)

    def to_document(self) -> dict[str, Any]:
        return write_document(self, "trigger", {})

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Trigger:
        return read_document(cls, "trigger", document, {})


@dataclass
class PausedDetails:
    """Who holds a workflow, and since when; `resume_time` is None while it is held."""

    paused_by: str = "anonymous"
    pause_time: datetime | None = None
    resumed_by: str | None = None
    resume_time: datetime | None = None
    reason: str = ""

    @property
    def is_paused(self) -> bool:
        return self.pause_time is not None and self.resume_time is None

    def to_document(self) -> dict[str, Any]:
        return write_document(self, "paused", _PAUSED_FORMS)

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> PausedDetails:
        return read_document(cls, "paused", document, _PAUSED_FORMS)


_PAUSED_FORMS: Final[Mapping[str, Form]] = {"pause_time": TIME, "resume_time": TIME}
