import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import PolicyError
from holdfast.machine.budget import Budget, BudgetFigures, BudgetLedger


def ledger(executions: int, policy: Budget | None = None) -> BudgetLedger:
    made = BudgetLedger(policy or Budget())
    for _ in range(executions):
        made.begin_execution()
    return made


def retries_granted(made: BudgetLedger, wanted: int) -> int:
    return sum(made.try_begin_retry() for _ in range(wanted))


def test_a_few_retries_are_always_allowed():
    assert retries_granted(ledger(executions=1), 10) == 3


def test_beyond_them_retries_are_a_share_of_the_executions_in_flight():
    # The twentieth is still at the rate of 0.2, the twenty-first finds it exceeded.
    assert retries_granted(ledger(executions=100), 50) == 21


def test_a_retry_that_ends_makes_room_for_another():
    made = ledger(executions=1)
    retries_granted(made, 3)
    assert not made.try_begin_retry()
    made.end_retry()
    assert made.try_begin_retry()


def test_executions_that_end_take_their_share_with_them():
    made = ledger(executions=100)
    retries_granted(made, 10)
    for _ in range(90):
        made.end_execution()
    assert not made.try_begin_retry()


def test_without_executions_only_the_minimum_is_allowed():
    assert retries_granted(ledger(executions=0), 10) == 3
    assert retries_granted(ledger(executions=0, policy=Budget(0.5, min_concurrency=0)), 10) == 1


def test_a_refused_retry_is_not_counted():
    made = ledger(executions=1)
    retries_granted(made, 99)
    assert made.inflight == 3


def test_figures_show_what_the_decision_rests_on():
    made = ledger(executions=8)
    retries_granted(made, 2)
    assert made.figures() == BudgetFigures(executions=8, inflight=2, rate=0.25, max_rate=0.2, min_concurrency=3)
    assert ledger(executions=0).figures().rate == 0


def test_a_number_stands_for_the_rate():
    assert Budget.of(0.1) == Budget(max_rate=0.1)
    assert Budget.of(Budget(0.3, 5)) == Budget(0.3, 5)


@given(
    st.floats(0, 1),
    st.integers(0, 5),
    st.lists(st.sampled_from(["begin", "end", "retry", "retry", "done"]), max_size=80),
)
def test_a_retry_is_refused_exactly_when_the_rule_says_so(rate, minimum, script):
    made = ledger(0, Budget(rate, minimum))
    executions = inflight = 0
    for action in script:
        if action == "begin":
            made.begin_execution()
            executions += 1
        elif action == "end" and executions:
            made.end_execution()
            executions -= 1
        elif action == "done" and inflight:
            made.end_retry()
            inflight -= 1
        elif action == "retry":
            refused = inflight >= minimum and inflight > rate * executions
            assert made.exhausted() == refused
            assert made.try_begin_retry() is not refused
            inflight += not refused
        assert (made.executions, made.inflight) == (executions, inflight)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"max_rate": -0.1}, "max_rate must be a share between 0 and 1, got -0.1"),
        ({"max_rate": 20}, "max_rate must be a share between 0 and 1, got 20"),
        ({"max_rate": float("nan")}, "max_rate"),
        ({"min_concurrency": -1}, "min_concurrency must be 0 or more, got -1"),
    ],
)
def test_an_impossible_budget_is_refused(arguments, message):
    with pytest.raises(PolicyError, match=rf"Budget\.{message}"):
        Budget(**arguments)
