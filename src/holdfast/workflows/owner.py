"""SyntheticStageOwner: how a stage belongs to another one."""

from __future__ import annotations

from enum import StrEnum


class SyntheticStageOwner(StrEnum):
    """When a stage that belongs to another one is run: before its tasks, after them, or when it has failed."""

    STAGE_BEFORE = "STAGE_BEFORE"
    STAGE_AFTER = "STAGE_AFTER"
    STAGE_ON_FAILURE = "STAGE_ON_FAILURE"
