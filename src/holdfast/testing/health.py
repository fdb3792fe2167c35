"""The doctor as an assertion."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from holdfast.doctor.examine import examine
from holdfast.doctor.rules import Severity

if TYPE_CHECKING:
    from holdfast.app import Holdfast


def assert_healthy(hold: Holdfast, *, ignore: Collection[str] = (), store: bool = False) -> None:
    """Fail with what the doctor finds that is worse than a hint. `ignore` are rules by id or name.

    It looks at the policies; with `store` at what is in the store, too.
    """
    __tracebackhide__ = True
    diagnosis = examine(hold, ignore=ignore, policies_only=not store)
    bad = [finding for finding in diagnosis.findings if finding.rule.severity is not Severity.HINT]
    if bad or diagnosis.unseen:
        raise AssertionError("\n".join(map(str, bad)) or "the store cannot be looked at")
