"""Everything that the doctor looks at, in order."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from holdfast.doctor.policies import look_at_policies
from holdfast.doctor.rules import RULES, Finding, Severity
from holdfast.doctor.state import look_at_state
from holdfast.doctor.surroundings import look_at_machine, look_at_store
from holdfast.errors import ConfigurationError

if TYPE_CHECKING:
    from holdfast.app import Holdfast


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What was found, the worst first, and what was not looked at because the store is away."""

    findings: tuple[Finding, ...]
    unseen: tuple[str, ...] = ()

    def of(self, severity: Severity) -> list[Finding]:
        return [finding for finding in self.findings if finding.rule.severity is severity]

    @property
    def is_healthy(self) -> bool:
        """Whether nothing is worse than a hint."""
        return not self.unseen and all(finding.rule.severity is Severity.HINT for finding in self.findings)

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        findings = [finding.as_dict() for finding in self.findings]
        return {"healthy": self.is_healthy, "findings": findings, "unseen": list(self.unseen)}

    def __str__(self) -> str:
        return "\n".join(map(str, self.findings)) or "nothing found"


def examine(hold: Holdfast, *, ignore: Collection[str] = (), policies_only: bool = False) -> Diagnosis:
    """Look at a program's policies and, unless told not to, at its store. Nothing is changed.

    `ignore` are rules by id or name. Raises ConfigurationError for one that does not exist.
    """
    _check_known(ignore)
    findings, unseen = [*look_at_policies(hold)], []
    if not policies_only:
        findings += look_at_store(hold)
        if any(finding.rule.name in ("store-away", "old-schema") for finding in findings):
            unseen.append("what waits in the store")
        else:
            findings += look_at_machine(hold)
            findings += look_at_state(hold)
    order = list(Severity)
    kept = [finding for finding in findings if not {finding.rule.id, finding.rule.name} & set(ignore)]
    return Diagnosis(tuple(sorted(kept, key=lambda one: (order.index(one.rule.severity), one.rule.id))), tuple(unseen))


def _check_known(ignore: Collection[str]) -> None:
    if isinstance(ignore, str):
        raise ConfigurationError(f"ignore takes rules in a list, got {ignore!r}; write [{ignore!r}]")
    known = {name for rule in RULES for name in (rule.id, rule.name)}
    for name in ignore:
        if name not in known:
            raise ConfigurationError(f"there is no rule {name!r}; holdfast doctor --rules lists them")
