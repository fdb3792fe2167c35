"""The text of a fused function: what `guard/fuse.py` compiles.

Names that end in an underscore are ours; the rest is the guarded function's own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from holdfast.guard.signature import Signature
from holdfast.telemetry.hub import BATCH

if TYPE_CHECKING:
    from holdfast.guard.fuse import Parts
    from holdfast.guard.plan import Plan


class Writer:
    """Writes the lines, for a call that is `generic` (takes the function) or not, and gives an Outcome or a value."""

    def __init__(
        self, plan: Plan, parts: Parts, signature: Signature, is_async: bool, outcome: bool, generic: bool
    ) -> None:
        self.parts = parts
        self.signature = signature
        self.is_async = is_async
        self.outcome = outcome
        self.generic = generic
        self.metrics = plan.metrics
        self.kept = plan.setting.keeper is not None
        self.heeds = plan.context is not False
        self.publishes = plan.publishes
        self.wait = "await " if is_async else ""
        self.fn = "fn" if generic else "fn_"
        self.handed = f"fn, {signature.passed}" if generic else signature.passed
        breaker, rate, limit = self.parts.breaker, self.parts.rate_limit, self.parts.limit
        self.heeds_success = "never" if breaker is None else breaker.policy.heeds_success
        self.goes_on = plan.short_way is not None
        self.repeats = plan.short_way is not None and plan.short_way.repeats
        timed = self.metrics or limit is not None or rate is not None or self.heeds_success == "always"
        self.timed = timed or outcome  # the times of failed attempts are part of an outcome
        self.on_wheel = is_async and limit is not None
        # Waiting for a slot with nothing to bound the wait is simple enough to be done here.
        bulkhead = self.parts.bulkhead
        self.waits = is_async and bulkhead is not None and (bulkhead.max_wait, limit, rate) == (None,) * 3
        self.begun = "begun_" if self.waits else "started_"
        self.budgeted = self.parts.retry is not None and self.parts.retry.budget is not None

    def text(self) -> str:
        return "\n".join([self.head(), *_indent(self.body())]) + "\n"

    def bare_text(self) -> str:
        """For a plan that cannot be fused."""
        return "\n".join([self.head(), *_indent(self.divert())]) + "\n"

    def head(self) -> str:
        declared = f"fn, /, {self.signature.declared}" if self.generic else self.signature.declared
        return f"{'async ' if self.is_async else ''}def guarded({declared}):"

    def body(self) -> list[str]:
        lines = [*self.heed(), *self.admit(), *self.open_scope(), *self.attempt(further=False)]
        if self.repeats:
            lines += ["while failure_ is None:", *_indent(self.attempt(further=True))]
        return [*lines, *(self.leave() if self.goes_on else [*self.close_scope(), *self.resume("failure_")])]

    def attempt(self, *, further: bool) -> list[str]:
        """An attempt, with what follows a success; and a failure, where the short way knows that."""
        return [
            "try:",
            *_indent(self.run()),
            "except anything_ as error_:",
            *_indent(self.weigh(further) if self.goes_on else ["failure_ = error_"]),
            "else:",
            *_indent(self.success_at_last() if further else self.success()),
        ]

    def heed(self) -> list[str]:
        """Leave for the general path when somebody listens, a newer plan is there, or the context says so."""
        lines = ["if plan_.shut:", *_indent(self.divert())]
        if self.heeds:
            lines += ["parent_ = current_()"]
            lines += ["if parent_ is not None and parent_[2] is not None:", *_indent(self.divert())]
        return lines

    def admit(self) -> list[str]:
        parts, lines = self.parts, ["started_ = monotonic_()"] if self.timed else []
        if self.on_wheel:  # before anything is taken: it may raise
            lines += ["loop_ = running_loop_()", "task_ = current_task_(loop_)"]
            lines += ["if task_ is None:", *_indent(self.divert())]
        if parts.breaker is not None:
            lines += ["permit_ = circuit_.gate", "if not permit_:", *_indent(self.refuse())]
        if parts.bulkhead is not None:
            busy = self.queue_up() if self.waits else self.divert()
            lines += ["begun_ = started_"] if self.waits and self.timed else []
            lines += ["if waiting_:", *_indent(busy), "else:", "    try:", "        take_slot_()"]
            lines += ["    except no_slot_:", *_indent(_indent(busy))]
        if parts.rate_limit is not None:
            lines += self.take_token(parts.rate_limit.bucket.quick)
        return lines

    def take_token(self, quick: str | None) -> list[str]:
        """Take a token, by the machine's own lines where no lock is needed for them."""
        short = [*self.give_slot(), *self.divert()]
        if quick is None:
            taken = ["hold_()", "try:", "    short_ = take_token_(started_)", "finally:", "    let_go_()"]
            return [*taken, "if short_:", *_indent(short)]
        lines = ["if limiter_.busy:", *_indent(short)]
        for line in re.sub(r"(?<!\.)\b(refilled|taken|bucket|now)\b", r"\1_", quick).splitlines():
            lines += _indent(short) if line.strip() == "no" else [line.replace("now_", "started_")]
        return lines

    def queue_up(self) -> list[str]:
        lines = ["if not await queue_up_(driver_):", *_indent(self.divert())]
        if self.parts.breaker is not None:
            # The circuit may have opened while we waited.
            refused = [*self.give_slot(), *self.refuse(admitted=True)]
            lines += ["permit_ = circuit_.gate", "if not permit_:", *_indent(refused)]
        return lines + (["begun_ = monotonic_()"] if self.timed else [])

    def refuse(self, admitted: bool = False) -> list[str]:
        """The quick no of an open circuit, where nothing outside the breaker must see the call first."""
        parts = self.parts
        outside = not admitted and (parts.bulkhead is not None or parts.rate_limit is not None)
        if outside or parts.fallback is not None or self.kept:
            return self.divert()
        noted = ["note_refusal_(refusal_)", f"if len_(refused_) >= {BATCH}:", "    fold_()"] if self.metrics else []
        # Raised as it is made: a name for it in this frame, which its traceback holds, would have to be deleted.
        told = ["raise circuit_open_(name_, left_) from bar_[1]"]
        if self.outcome:
            told = ["error_ = circuit_open_(name_, left_)", "error_.__cause__ = bar_[1]"]
            told += ["return rejected_(error_, 0, rule=circuit_.rule)"]
        return [
            "bar_ = circuit_.bar",
            "if bar_ is not None:",
            f"    left_ = bar_[0] - {'started_' if self.timed and not admitted else 'monotonic_()'}",
            "    if left_ > 0:",
            *_indent(_indent([*noted, *told])),
            *self.divert(),
        ]

    def open_scope(self) -> list[str]:
        limit = self.parts.limit
        lines = ["begin_()"] if self.budgeted else []
        if self.on_wheel:
            lines += [
                "wheel_ = wheels_.at",
                "if wheel_.loop is not loop_:",
                "    wheel_ = wheels_.switch(loop_)",
                f"entry_ = [task_, started_ + {limit!r}, 0, task_.cancelling()]",
                "queue_ = wheel_.queue",
                "queue_.append(entry_)",
                "if wheel_.armed is None:",
                "    wheel_.arm()",
            ]
        if self.publishes:
            until = "None" if limit is None else f"started_ + {limit!r}"
            lines += [f"link_ = [plan_, parent_, {until}, None]", "token_ = publish_(link_)"]
        return lines

    def close_scope(self) -> list[str]:
        lines: list[str] = []
        if self.on_wheel:
            lines += ["if queue_ and queue_[0] is entry_:", "    queue_.popleft()", "else:", "    wheel_.sweep(entry_)"]
        lines += ["end_()"] if self.budgeted else []
        if self.publishes:
            # Tasks that outlive the call still see its link, but there is nothing to defer to any more. And a coroutine
            # that is collected after its loop has closed runs this in a context that the token is not of.
            lines += ["link_[0] = ended_scope_", "try:", "    reset_(token_)", "except wrong_:", "    pass"]
        return lines

    def withdraw(self) -> list[str]:
        """`close_scope` in two lines, where no success waits for it."""
        return ["link_[0] = ended_scope_", "withdraw_(token_)"] if self.publishes else []

    def run(self) -> list[str]:
        called = f"{self.fn}({self.signature.passed})"
        if not (self.is_async and self.generic):
            return [f"result_ = {self.wait}{called}"]
        return [f"result_ = {called}", "if hasattr(result_, '__await__'):", "    result_ = await result_"]

    def refuse_lazy(self) -> list[str]:
        """Say no where nothing has run yet. What is decorated was asked then whether it is a generator."""
        refused = f"    refuse_lazy_({self.fn}, result_)"
        if self.generic:  # three comparisons are faster than a look into a set
            one_of = "kind_ is generator_ or kind_ is async_generator_ or kind_ is coroutine_"
            return ["kind_ = type_(result_)", f"if {one_of}:", refused]
        return [] if self.is_async else ["if type_(result_) is coroutine_:", refused]

    def success(self) -> list[str]:
        limit, lines = self.parts.limit, self.close_scope()
        took = "took_" if limit is not None or self.heeds_success == "always" else "monotonic_() - started_"
        if took == "took_":
            lines += ["ended_ = monotonic_()", "took_ = ended_ - started_"]
        if limit is not None:
            late = f"took_ > {limit!r}" + (" or entry_[2]" if self.on_wheel else "")
            lines += [f"if {late}:", *_indent(self.resume("None", "result_"))]
        if self.heeds_success == "after_failure":
            lines += ["if circuit_.dirty:", "    succeed_(permit_, monotonic_(), 0.0)"]
        elif self.heeds_success == "always":
            # What `LiveCircuit.succeed` does, without a frame of its own.
            heed = f"heed_success_(permit_, ended_, ended_ - {self.begun})"
            lines += ["hold_circuit_()", "try:", f"    {heed}", "finally:", "    free_circuit_()"]
            lines += ["if circuit_.changes is not None:", "    tell_changes_()"]
        lines += self.give_slot()
        lines += self.refuse_lazy()
        if self.metrics:
            lines += [f"note_({took})", f"if len_(pending_) >= {BATCH}:", "    fold_()"]
        value = "outcome_of_(success_, result_, None, None, None, None, None, 1, None)" if self.outcome else "result_"
        return [*lines, f"return {value}"]

    def success_at_last(self) -> list[str]:
        """A success after failures: less in a hurry, and who has begun to listen hears of it."""
        lines = [*self.read_end(), *self.withdraw(), *self.refuse_lazy(), "if plan_.shut:", "    break"]
        if self.heeds_success != "never":
            lines += [f"succeed_(permit_, ended_, {self.service(further=True)})"]
        if self.metrics:
            lines += ["note_call_(success_, ended_ - started_)"]
        told = "recovered_(trail_, result_, started_, ended_)" if self.outcome else "result_"
        return [*lines, *self.give(told)]

    def give(self, value: str) -> list[str]:
        """Return, and let go of the trail: this frame is in the tracebacks of its errors."""
        return ["try:", f"    return {value}", "finally:", "    trail_ = None"]

    def read_end(self) -> list[str]:
        return ["ended_ = monotonic_()"] if self.timed or self.parts.breaker is not None else []

    def service(self, *, further: bool) -> str:
        """How long the attempt has run: a further one began when the one before it ended."""
        return f"ended_ - {'trail_[1]' if further else self.begun}" if self.timed else "0.0"

    def give_slot(self) -> list[str]:
        if self.parts.bulkhead is None:
            return []
        return [
            "if slots_.debt:",
            "    give_slot_()",
            "else:",
            "    free_slot_(None)",
            "    if waiting_:",
            "        hand_over_()",
        ]

    def divert(self) -> list[str]:
        outcome = f"{self.wait}divert_({self.handed})"
        return [f"return {outcome}" if self.outcome else f"return delivered_({outcome})"]

    def weigh(self, further: bool) -> list[str]:
        """What follows a failure: another attempt, the end, or the general path for all that is not plain."""
        unplain = "(after_.asks or error_.__dict__) and not plain_(after_, error_) or plan_.shut"
        if self.publishes:
            # A surrounding call, a context that somebody has looked at, a word against retrying.
            unplain += " or parent_ is not None or link_[3] is not None or len_(link_) > 4"
        return [
            *([] if further or not self.repeats else ["trail_ = result_ = None"]),
            *self.read_end(),
            f"after_ = {'step_' if further else 'first_'}[type_(error_)]",
            f"if {unplain}:",
            "    failure_ = error_",
            "else:",
            *_indent(self.count_failure(further)),
            *_indent(self.go_on(further) if self.repeats else self.end(further)),
        ]

    def count_failure(self, further: bool) -> list[str]:
        if self.parts.breaker is None:
            return []
        told = f"finish_(permit_, after_.evidence, ended_, {self.service(further=further)}, error_)"
        if not self.publishes:
            return [told]
        # A listener may be interrupted.
        return ["try:", f"    {told}", "except anything_:", *_indent(self.withdraw()), "    raise"]

    def go_on(self, further: bool) -> list[str]:
        """Another attempt with what it needs to know of this one, unless the circuit will not have it."""
        again = [f"trail_, step_, failure_ = (error_, {'ended_' if self.timed else 'None'}, trail_), after_, None"]
        if self.parts.breaker is not None:
            again = ["permit_ = circuit_.gate", "if permit_:", *_indent(again), "else:", "    failure_ = error_"]
        return ["if after_.story is None:", *_indent(again), "else:", *_indent(self.end(further))]

    def end(self, further: bool) -> list[str]:
        """The failure stands: raised from where it was caught, which keeps our lines out of its traceback."""
        lines = self.withdraw()
        if self.metrics:
            lines += ["note_call_(after_.kind, ended_ - started_)"]
        told = f"ended_as_({'trail_' if further else 'None'}, after_, error_, started_, ended_)"
        if not further:
            return [*lines, f"return {told}" if self.outcome else "raise"]
        if self.outcome:
            return [*lines, *self.give(told)]
        return [
            *lines,
            "trail_ = None",
            "if after_.asks or error_.__dict__:",
            "    annotate_(error_, after_.story)",
            "else:",
            "    error_.__notes__ = [after_.story]",  # what add_note does, at half the price
            "raise",
        ]

    def leave(self) -> list[str]:
        """Hand the call over to the general path."""
        breaker = self.parts.breaker is not None
        facts = (
            "trail_, after_, failure_, result_" if self.repeats else "None, after_, failure_, None",
            "started_" if self.timed else "None", "ended_" if self.timed or breaker else "monotonic_()",
            "permit_" if breaker else "0", "link_" if self.publishes else "None", "not permit_" if breaker else "False",
        )  # fmt: skip
        args = f"({self.signature.positional}), {{{self.signature.keywords}}}"
        left = f"{self.wait}carry_on_({self.fn}, {args}, leave_({', '.join(facts)}))"
        withdrawn = ["if link_[0] is plan_:", *_indent(self.withdraw())] if self.publishes else []
        return self.raised_here([*withdrawn, f"outcome_ = {left}"])

    def resume(self, failure: str, result: str = "None") -> list[str]:
        """Go on from a first attempt, and raise what comes of it from here: every frame in between would cost."""
        facts = (
            self.fn, f"({self.signature.positional})", f"{{{self.signature.keywords}}}",
            "started_" if self.timed else "None", "permit_" if self.parts.breaker is not None else "0",
            "link_" if self.publishes else "None", failure, "entry_, task_" if self.on_wheel else "None, None", result,
            *([self.begun] if self.waits and self.timed else []),
        )  # fmt: skip
        going_on = f"{self.wait}resume_({', '.join(facts)})"
        if failure == "None":
            return [f"return {going_on}" if self.outcome else f"return delivered_({going_on})"]
        return self.raised_here([f"outcome_ = {going_on}"])

    def raised_here(self, lines: list[str]) -> list[str]:
        """Give the outcome that the lines come to, or what it stands for."""
        value = ["if outcome_.kind.has_value:", "    return outcome_.value", "failure_ = failed_(outcome_)"]
        names = "failure_ = outcome_ = trail_" if self.repeats else "failure_ = outcome_"
        given = ["return outcome_"] if self.outcome else [*value, "raise failure_"]
        return ["try:", *_indent([*lines, *given]), "finally:", f"    {names} = None"]  # this frame is in its traceback


def _indent(lines: Iterable[str]) -> list[str]:
    return [f"    {line}" for line in lines]
