"""What a workflow guarantees: step by step, and as a whole, in words and as a document."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from holdfast.workflows.children import CHILD
from holdfast.workflows.effects import Effect, effect_named, weakest
from holdfast.workflows.functions import WORKFLOW_TYPE
from holdfast.workflows.plan import Blueprint, StageExtras
from holdfast.workflows.verification import CHECK, LOOK

_STEP: Final[Mapping[Effect | None, str]] = {
    Effect.PURE: "changes nothing, so it does not matter how often it runs",
    Effect.TRANSACTIONAL: "its writes to this database commit with the step: exactly once",
    Effect.IDEMPOTENT: "may be called again, with the same key, which changes nothing more",
    Effect.AT_LEAST_ONCE: "happens at least once; again if its worker dies while it runs",
    None: "says nothing of its effect, so: at least once; again if its worker dies while it runs, or after a failure "
    "that is tried again",
}
CALLED: Final = "another workflow"
_STARTED: Final = "is started exactly once; what it guarantees is told of that one, and is not known here"
_WHOLE: Final[Mapping[Effect, str]] = {
    Effect.PURE: "nothing outside is changed",
    Effect.TRANSACTIONAL: "every effect happens exactly once, in this database",
    Effect.IDEMPOTENT: "every effect counts once, as far as those who are called honour their keys",
    Effect.AT_LEAST_ONCE: "every effect happens at least once, and some may happen again",
}


@dataclass(frozen=True, slots=True)
class StepGuarantee:
    """What holds for one task of one stage. `effect` is what its author declares; None: nothing."""

    stage: str
    task: str
    effect: Effect | None
    starts_workflow: bool = False
    """Whether it has another workflow started, which has guarantees of its own."""

    @property
    def label(self) -> str:
        """What kind of step it is, in a word or two."""
        return CALLED if self.starts_workflow else self.effect or "undeclared"

    @property
    def words(self) -> str:
        return _STARTED if self.starts_workflow else _STEP[self.effect]


@dataclass(frozen=True, slots=True)
class WorkflowGuarantees:
    """What holds for each step, and for the whole: what the weakest step leaves."""

    name: str
    steps: tuple[StepGuarantee, ...]
    dead_letter: bool

    @property
    def effect(self) -> Effect:
        return weakest(step.effect for step in self.steps)

    @property
    def weakest(self) -> tuple[str, ...]:
        """The stages that are the reason for it."""
        return tuple(
            dict.fromkeys(step.stage for step in self.steps if (step.effect or Effect.AT_LEAST_ONCE) is self.effect)
        )

    @property
    def words(self) -> str:
        ending = "leaves a dead letter" if self.dead_letter else "leaves no dead letter"
        return (
            f"Each step that has ended is kept, and is not run again. {_WHOLE[self.effect].capitalize()}. "
            f"A run that fails for good {ending}."
        )

    def to_document(self) -> dict[str, Any]:
        steps = [
            {"stage": one.stage, "task": one.task, "effect": one.effect, "label": one.label, "words": one.words}
            for one in self.steps
        ]
        return {
            "name": self.name, "effect": self.effect, "words": self.words, "weakest": list(self.weakest),
            "dead_letter": self.dead_letter, "steps": steps,
        }  # fmt: skip

    def __str__(self) -> str:
        lines = [f"{one.stage}: {one.label}: {one.words}" for one in self.steps]
        return "\n".join([f"{self.name}: {self.words}", *lines])


def guarantees_of(blueprint: Blueprint) -> WorkflowGuarantees:
    """What a definition guarantees."""
    steps = [
        StepGuarantee(
            ref, task["name"] or task["type"], _effect(task, blueprint.extras[ref]), _starts_workflow(task["type"])
        )
        for ref in blueprint.plan.stages
        for task in blueprint.extras[ref].tasks
    ]
    return WorkflowGuarantees(blueprint.name, tuple(steps), blueprint.dead_letter)


def _starts_workflow(type: str) -> bool:
    return type == CHILD or type.startswith(WORKFLOW_TYPE)


def _effect(task: Mapping[str, Any], extras: StageExtras) -> Effect | None:
    """What a task of a stage declares. To look at keys and types is ours, and changes nothing."""
    # After a function stand only its checks; a model may have a task of the user's that is called like one.
    looks = task["type"] == (CHECK if extras.model is not None else extras.tasks[0]["type"] + LOOK)
    return Effect.PURE if looks else effect_named(task["type"], task.get("effect"))
