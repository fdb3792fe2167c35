"""The catalogue: every rule that the doctor knows, and how bad it is to break it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Severity(StrEnum):
    """ERROR loses work or calls, or will; WARNING may under load or failure; HINT is worth knowing."""

    ERROR = "error"
    WARNING = "warning"
    HINT = "hint"


@dataclass(frozen=True, slots=True)
class Rule:
    """`id` stays, whatever becomes of the words; `name` is for people."""

    id: str
    name: str
    severity: Severity
    why: str


_E, _W, _H = Severity.ERROR, Severity.WARNING, Severity.HINT

RULES: Final = (
    Rule("HF101", "no-timeout", _W, "A call that hangs holds its thread, its slot and its caller for ever."),
    Rule("HF102", "endless-retry", _E, "A dependency that stays down keeps every caller in its retry loop."),
    Rule("HF103", "unbounded-waits", _H, "A dependency may ask for long waits (Retry-After); a total bounds them."),
    Rule("HF104", "attempts-cut", _W, "The last attempts can never run, so the policy promises more than it does."),
    Rule("HF105", "endless-queue", _W, "Callers wait without a limit, and answers come too late to be of use."),
    Rule("HF106", "breaker-outside", _W, "A breaker outside the retry sees calls, not attempts, and opens late."),
    Rule("HF107", "hedging", _H, "Two calls of the same kind may run at once: the callee must not mind."),
    Rule("HF108", "chaos", _W, "Calls fail on purpose."),
    Rule("HF109", "many-calls", _W, "One call may become very many calls of a dependency that is in trouble."),
    Rule("HF110", "nobody-replays", _E, "Dead letters are kept for a domain that nothing here can replay."),
    Rule("HF111", "unsafe-repeat", _E, "What is declared not to bear repetition is repeated: its effect comes twice."),
    Rule("HF201", "two-retry-layers", _W, "Attempts of two layers multiply, when the dependency can bear it least."),
    Rule("HF202", "outlives-caller", _W, "A guard that may take longer than its caller allows is cut in the middle."),
    Rule("HF203", "unknown-guard", _E, "A task names a guard that does not exist: its first run will fail."),
    Rule("HF204", "short-lease", _W, "A worker that stalls for the time of its lease has the call made a second time."),
    Rule("HF205", "few-heartbeats", _W, "One late heartbeat, and a worker that is alive loses all that it has."),
    Rule("HF206", "stall-repeats", _H, "A worker that stalls is taken for dead, and its tasks are called again."),
    Rule("HF207", "nested-retries", _W, "Attempts of a guard inside another one multiply, unless one defers."),
    Rule("HF301", "orphaned-letters", _E, "Letters wait in a domain whose functions this program has not registered."),
    Rule("HF302", "late-letters", _W, "Letters wait for longer than their service level."),
    Rule("HF303", "spooled-letters", _W, "Failures were written to the spool file and are not in the store yet."),
    Rule("HF304", "full-letters", _W, "At the letters' capacity old ones give way, or new ones are refused."),
    Rule("HF305", "abandoned-entries", _W, "Calls of the outbox were given up; somebody must decide about them."),
    Rule("HF306", "stuck-sagas", _E, "A saga can neither go on nor be undone by itself."),
    Rule("HF307", "failed-workflows", _H, "Workflows have failed for good and can be retried."),
    Rule("HF308", "stranded-workflows", _W, "Work waits that no worker can take: its task or code version is missing."),
    Rule("HF309", "dead-items", _W, "Messages and items that nobody could do anything with wait for a decision."),
    Rule("HF401", "store-away", _E, "Nothing can be kept while the store cannot be reached."),
    Rule("HF402", "old-schema", _E, "The tables are of another revision than the program."),
    Rule("HF403", "forgets", _W, "A store in memory ends with its process, and is shared with nobody."),
    Rule("HF404", "clock-skew", _W, "Leases use the database's time; deadlines use this host's."),
    Rule("HF405", "unkeyed-trail", _H, "Without a key, whoever can write to the database can forge the trail."),
    Rule("HF406", "spool-unwritable", _E, "Failures that the store cannot take would be lost."),
    Rule("HF407", "not-durable", _W, "The server may lose what it has acknowledged."),
)  # fmt: skip
BY_NAME: Final = {rule.name: rule for rule in RULES}


@dataclass(frozen=True, slots=True)
class Finding:
    """A rule that is broken: where, what is so, and what to do about it."""

    rule: Rule
    where: str
    what: str
    fix: str

    def as_dict(self) -> dict[str, str]:
        """Plain values for JSON."""
        return {
            "rule": self.rule.id, "name": self.rule.name, "severity": self.rule.severity, "where": self.where,
            "what": self.what, "fix": self.fix, "why": self.rule.why,
        }  # fmt: skip

    def __str__(self) -> str:
        return f"{self.rule.id} {self.rule.severity}: {self.where}: {self.what}; {self.fix}"


def found(name: str, where: str, what: str, fix: str) -> Finding:
    return Finding(BY_NAME[name], where, what, fix)
