"""How many workflows of a pipeline may run at once."""

from __future__ import annotations

from typing import Any

from holdfast.errors import WorkflowDefinitionError


def check_limit(what: str, limit: Any) -> None:
    """Raises WorkflowDefinitionError for what is no limit."""
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 1):
        story = f"{what} must be a whole number of at least 1, got {limit!r}; leave it out for no limit"
        raise WorkflowDefinitionError("bad_limit", story)
