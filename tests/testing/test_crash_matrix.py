"""The crash matrix, as a user meets it: by its function, and by `pytest --holdfast-crash-matrix`."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from holdfast.testing import WorkflowTestKit, crash_matrix
from holdfast.workflows.functions import task, workflow
from holdfast.workflows.model import Workflow
from holdfast.workflows.task_context import current_task
from holdfast.workflows.waiting import sleep, wait_signal
from tests.workflows.journal import stage

pytest_plugins = ["pytester"]

PROJECT = """
import pytest
from holdfast import task, workflow
from holdfast.workflows.task_context import current_task

class Bank:
    def __init__(self, minds_keys):
        self.minds_keys, self.charges = minds_keys, {}

    def charge(self, key, amount):
        if not (self.minds_keys and key in self.charges):
            self.charges[key] = self.charges.get(key, 0) + amount

@pytest.fixture(params=[%s])
def bank(request):
    bank = Bank(request.param)
    yield bank
    bank.charges = None  # it is not there any more when the kit's own fixture ends

def test_order(holdfast_workflows, bank):
    kit = holdfast_workflows

    @task
    def charge(amount):
        bank.charge(current_task().ref, amount)
        return amount

    @task
    def ship(amount):
        return f"shipped for {amount}"

    @workflow
    def fulfil(amount):
        return ship(charge(amount))

    kit.world = lambda: bank.charges
    assert kit.finish(kit.start(fulfil, 7)) == "shipped for 7"

def test_something_else():
    pass
"""


def test_a_step_that_is_not_idempotent_is_named(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(PROJECT % "False")
    result = pytester.runpytest_subprocess("--holdfast-crash-matrix", "-p", "no:cacheprovider")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        [
            "*not idempotent:",
            "  charge: the world is {'charge': 14} instead of {'charge': 7}",
            "*holdfast crash matrix*",
            "crash *step *run again *verdict",
            "before claim *ok",
            "before write down *charge *charge *charge: the world is {'charge': 14} instead of {'charge': 7}",
            "after write down *charge *ok",
        ]
    )
    assert "ship: " not in result.stdout.str()


def test_a_workflow_whose_steps_all_bear_crashes_passes(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(PROJECT % "True")
    result = pytester.runpytest_subprocess("--holdfast-crash-matrix", "-p", "no:cacheprovider")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["*test_order*: * durable points, * crashes; every step bears them"])


def test_a_transactional_step_is_crashed_on_a_database_of_its_own_in_each_run(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import pytest, sqlalchemy as sa
        from holdfast import current_session, task, workflow

        entries = sa.Table("entries", sa.MetaData(), sa.Column("cents", sa.Integer))

        @task(effect="transactional")
        def book(cents):
            current_session().execute(entries.insert().values(cents=cents))

        @pytest.fixture
        def holdfast_workflows_options():
            return {"url": "sqlite://"}

        def test_booking(holdfast_workflows):
            kit = holdfast_workflows
            with kit.hold.sessions.begin() as session:
                entries.create(session.connection())

            def world():
                with kit.hold.sessions() as session:
                    return session.execute(sa.select(entries.c.cents)).scalars().all()

            kit.world = world
            kit.finish(kit.start(workflow(name="buy")(lambda: book(300))))
            assert world() == [300]
    """)
    result = pytester.runpytest_subprocess("--holdfast-crash-matrix", "-p", "no:cacheprovider")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        ["before write down *book *book *ok", "*test_booking*: * durable points, * crashes; every step bears them"]
    )


def test_without_the_option_a_test_runs_once(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(PROJECT % "False")
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    result.assert_outcomes(passed=2)
    assert "crash matrix" not in result.stdout.str()


def test_a_test_that_fails_without_a_crash_fails_as_it_is(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_wrong(holdfast_workflows):\n    assert 1 == 2")
    result = pytester.runpytest_subprocess("--holdfast-crash-matrix", "-p", "no:cacheprovider")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*assert 1 == 2"])


def test_effects_that_happen_twice_name_their_step_and_what_it_declares() -> None:
    def order(kit: WorkflowTestKit) -> None:
        @task(effect="idempotent")
        def charge(amount: int) -> int:
            kit.effect("charge", key={"amount": amount})
            return amount

        @task
        def mail(amount: int) -> None:
            kit.effect("mail")

        kit.finish(kit.start(workflow(name="order")(lambda amount: mail(charge(amount))), 7))

    report = crash_matrix(order)
    assert [str(one) for one in report.findings] == [
        "charge: the effect 'charge' happened twice, though it is declared idempotent",
        "mail: the effect 'mail' happened twice",
    ]
    with pytest.raises(AssertionError, match="though it is declared idempotent"):
        report.check()


def test_a_pure_step_has_no_effect() -> None:
    def order(kit: WorkflowTestKit) -> None:
        @task(effect="pure")
        def look() -> None:
            kit.effect("look")

        kit.finish(kit.start(workflow(name="order")(lambda: look())))

    assert "look: it is declared pure, and has the effect 'look'" in map(str, crash_matrix(order).findings)


def test_a_task_of_a_stage_is_held_to_its_word_too() -> None:
    def order(kit: WorkflowTestKit) -> None:
        kit.workflows.registry.register("noted", lambda stage: kit.effect("mail"), effect="pure")
        kit.finish(kit.start(Workflow.create("shop", "order", [stage("look")])))

    assert "look: it is declared pure, and has the effect 'mail'" in map(str, crash_matrix(order).findings)


def test_what_honours_the_key_bears_every_crash_though_its_body_runs_twice() -> None:
    bodies: Counter[str] = Counter()

    def order(kit: WorkflowTestKit) -> None:
        seen: set[str] = set()

        @task
        async def charge() -> str:
            here = current_task()
            assert here is not None
            bodies[here.idempotency_key] += 1
            if here.idempotency_key not in seen:
                seen.add(here.idempotency_key)
                kit.effect("charge")
            return "charged"

        @workflow
        def slow() -> Any:
            paid = charge()
            wait = sleep(86400, after=[paid])
            return [paid, wait_signal("ok", after=[wait])]

        run = kit.start(slow)
        kit.advance(2 * 86400)
        kit.signal(run, "ok", 5)
        assert kit.finish(run) == ["charged", 5]

    report = crash_matrix(order)
    assert report.ok, report.table()
    assert max(bodies.values()) == 2
    assert {row.again for row in report.rows} >= {(), ("charge",)}


def test_a_workflow_is_enough() -> None:
    report = crash_matrix(workflow(name="order")(lambda n: task(name="double")(lambda n: 2 * n)(n)), 4)
    assert report.ok
    assert "every step bears them" in report.summary()
    with pytest.raises(TypeError, match="got 5"):
        crash_matrix(5)  # type: ignore[arg-type]


def test_a_scenario_that_goes_wrong_after_a_crash_is_told_with_its_error() -> None:
    def order(kit: WorkflowTestKit) -> None:
        kit.finish(kit.start(workflow(name="order")(lambda: task(name="fine")(lambda: 1)())))
        assert kit.crashes == 0, "it noticed"

    findings = crash_matrix(order).findings
    assert findings
    assert all("it noticed" in one.story for one in findings)


def test_a_workflow_that_goes_on_while_a_worker_that_died_as_it_left_is_missed_comes_to_its_end() -> None:
    @task
    def wake(number: int) -> int:
        return number

    report = crash_matrix(workflow(name="naps")(lambda number: wake(number, after=sleep(1))), 7)
    assert report.ok, report.table()
    assert any("leave" in row.point.name for row in report.rows)
