"""Stages that run several times side by side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from holdfast.core.check import check_whole
from holdfast.errors import PolicyError
from holdfast.machine.instances import MOST
from holdfast.workflows.documents import read_document, write_document


@dataclass(frozen=True, slots=True)
class MultiInstanceConfig:
    """How many instances of a stage there are, and how many of them it waits for.

    Their number is fixed (`count`), a number in the context, or the length of a list there, of which each gets one
    item; with `allow_dynamic` more can be added while it runs. The stage ends at `join_threshold` instances, 0 is all;
    `cancel_remaining` cancels the rest.
    """

    count: int | None = None
    count_from_context: str | None = None
    collection_from_context: str | None = None
    join_threshold: int = 0
    sync_on_complete: bool = True
    """Whether the stages after it wait for it to end."""
    allow_dynamic: bool = False
    cancel_remaining: bool = False

    def __post_init__(self) -> None:
        sources = {
            name: value
            for name in ("count", "count_from_context", "collection_from_context")
            if (value := getattr(self, name)) is not None
        }
        if len(sources) > 1:
            raise PolicyError(f"MultiInstanceConfig takes one of {', '.join(sources)}; leave out the others")
        if not sources and not self.allow_dynamic:
            raise PolicyError(
                "MultiInstanceConfig must say how many instances there are: give count, count_from_context or "
                "collection_from_context, or allow_dynamic=True to add them later"
            )
        if self.count is not None:
            check_whole("MultiInstanceConfig.count", self.count, "leave it out for a number that is not fixed")
            if self.count > MOST:
                raise PolicyError(
                    f"MultiInstanceConfig.count must be at most {MOST}, got {self.count}; start workflows"
                )
        for name in ("count_from_context", "collection_from_context"):
            key = getattr(self, name)
            if key is not None and (not isinstance(key, str) or not key):
                raise PolicyError(f"MultiInstanceConfig.{name} must be a key of the context, got {key!r}")
        self._check_threshold()

    def to_document(self) -> dict[str, Any]:
        return write_document(self, "mi_config", {})

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> MultiInstanceConfig:
        return read_document(cls, "mi_config", document, {})

    def _check_threshold(self) -> None:
        wanted: Any = self.join_threshold
        if isinstance(wanted, bool) or not isinstance(wanted, int) or wanted < 0:
            raise PolicyError(f"MultiInstanceConfig.join_threshold must be 0 or more, got {wanted!r}; use 0 for all")
        if self.count is not None and not self.allow_dynamic and wanted > self.count:
            raise PolicyError(
                f"MultiInstanceConfig.join_threshold must be at most count, got {wanted} of {self.count}; use 0 for all"
            )
