"""Outcome: the kinds, the values, and how one is unwrapped."""

from __future__ import annotations

import pickle
import traceback

import pytest

from holdfast import CircuitOpen, Evidence, GuardTimeout, Outcome, OutcomeError, OutcomeKind, Verdict

K = OutcomeKind

#               success failure retryable counts evidence
TABLE = {
    K.SUCCESS: (True, False, False, False, Evidence.SUCCESS),
    K.TIMEOUT: (False, True, True, True, Evidence.FAILURE),
    K.REJECTED: (False, False, False, False, Evidence.NEUTRAL),
    K.TRANSIENT_FAILURE: (False, True, True, True, Evidence.FAILURE),
    K.TERMINAL_FAILURE: (False, True, False, False, Evidence.NEUTRAL),
    K.PARTIAL: (False, False, False, False, Evidence.SUCCESS),
}


def test_there_are_exactly_the_six_kinds() -> None:
    assert set(K) == set(TABLE)


@pytest.mark.parametrize("kind", list(K))
def test_a_kind_answers_every_question_as_the_table_says(kind: K) -> None:
    answers = (kind.is_success, kind.is_failure, kind.is_retryable, kind.counts_toward_circuit_trip, kind.evidence)
    assert answers == TABLE[kind]


@pytest.mark.parametrize("kind", list(K))
def test_a_kinds_value_is_its_name_in_lower_case(kind: K) -> None:
    assert kind.value == kind.name.lower()
    assert kind == kind.name.lower()
    assert f"{kind}" == kind.value


@pytest.mark.parametrize("kind", list(K))
def test_a_kind_is_found_by_its_value_and_survives_pickling(kind: K) -> None:
    assert K(kind.value) is kind
    assert pickle.loads(pickle.dumps(kind)) is kind
    assert {kind: 1}[K(kind.value)] == 1


def test_a_success_carries_value_detail_and_metadata() -> None:
    outcome = Outcome.success(42, detail="warm", source="cache")
    assert (outcome.kind, outcome.value, outcome.detail) == (K.SUCCESS, 42, "warm")
    assert outcome.metadata == {"source": "cache"}
    assert outcome.is_success
    assert not outcome.is_failure
    assert outcome.unwrap() == 42


def test_none_is_a_legal_success_value() -> None:
    assert Outcome.success(None).unwrap() is None


def test_a_partial_result_unwraps_to_its_value() -> None:
    assert Outcome.failure(K.PARTIAL, value=[1, 2]).unwrap() == [1, 2]


def test_a_failure_cannot_be_a_success() -> None:
    with pytest.raises(ValueError, match="SUCCESS"):
        Outcome.failure(K.SUCCESS)


def test_a_failures_detail_is_type_and_message() -> None:
    assert Outcome.failure(K.TRANSIENT_FAILURE, OSError("down")).detail == "OSError: down"


def test_a_timeout_always_carries_a_timeout_error() -> None:
    outcome = Outcome.failure(K.TIMEOUT, detail="too slow")
    assert isinstance(outcome.error, TimeoutError)
    assert isinstance(outcome.error, GuardTimeout)


def test_a_rejected_outcome_carries_reason_and_retry_after() -> None:
    outcome = Outcome.rejected(CircuitOpen("pay", 2.5), rule="count")
    assert (outcome.kind, outcome.reason, outcome.retry_after) == (K.REJECTED, "circuit_open", 2.5)
    assert outcome.metadata == {"rule": "count"}
    assert outcome.attempts == 0


def test_unwrap_raises_the_very_error_that_was_captured() -> None:
    error = OSError("down")
    with pytest.raises(OSError, match="down") as caught:
        Outcome.failure(K.TRANSIENT_FAILURE, error).unwrap()
    assert caught.value is error


def test_unwrap_without_an_error_raises_an_outcome_error_with_kind_and_detail() -> None:
    with pytest.raises(OutcomeError) as caught:
        Outcome.failure(K.TERMINAL_FAILURE, detail="bad").unwrap()
    assert (caught.value.kind, caught.value.detail) == (K.TERMINAL_FAILURE, "bad")
    assert str(caught.value) == "terminal_failure: bad"


def test_unwrapping_again_and_again_does_not_grow_the_traceback() -> None:
    try:
        raise OSError("down")
    except OSError as error:
        outcome: Outcome[int] = Outcome.failure(K.TRANSIENT_FAILURE, error)
    lengths = set()
    for _ in range(5):
        with pytest.raises(OSError, match="down") as caught:
            outcome.unwrap()
        lengths.add(len(traceback.extract_tb(caught.value.__traceback__)))
    assert len(lengths) == 1


def test_the_traceback_still_shows_where_the_error_came_from() -> None:
    def the_culprit() -> None:
        raise OSError("down")

    try:
        the_culprit()
    except OSError as error:
        outcome: Outcome[int] = Outcome.failure(K.TRANSIENT_FAILURE, error)
    with pytest.raises(OSError, match="down") as caught:
        outcome.unwrap()
    assert "the_culprit" in [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]


@pytest.mark.parametrize("name", ["kind", "value", "error", "metadata", "attempts", "anything"])
def test_an_outcome_is_frozen(name: str) -> None:
    outcome = Outcome.success(1)
    with pytest.raises(AttributeError, match="frozen"):
        setattr(outcome, name, None)
    with pytest.raises(AttributeError, match="frozen"):
        delattr(outcome, name)


def test_evolve_makes_a_changed_copy_and_merges_metadata() -> None:
    first = Outcome.failure(K.TRANSIENT_FAILURE, OSError("down"), a=1)
    second = first.evolve(attempts=3, metadata={"stopped_by": "deadline"})
    assert (first.attempts, second.attempts) == (0, 3)
    assert second.metadata == {"a": 1, "stopped_by": "deadline"}
    assert first.metadata == {"a": 1}
    assert second.stopped_by == "deadline"
    assert first.stopped_by is None
    assert second.error is first.error


def test_late_is_false_unless_somebody_says_so() -> None:
    assert not Outcome.success(1).late
    assert Outcome.failure(K.TIMEOUT, late=True).late


def test_outcomes_with_equal_fields_are_equal() -> None:
    assert Outcome.success(1, a=2) == Outcome.success(1, a=2)
    assert hash(Outcome.success(1)) == hash(Outcome.success(1))
    assert Outcome.success(1) != Outcome.success(2)
    assert Outcome.success(1) != 1


def test_an_outcome_survives_pickling() -> None:
    outcome = Outcome.failure(K.TRANSIENT_FAILURE, OSError("down"), retry_after=3.0, attempts=2, a=1)
    back = pickle.loads(pickle.dumps(outcome))
    assert (back.kind, back.detail, back.retry_after, back.attempts) == (outcome.kind, outcome.detail, 3.0, 2)
    assert back.metadata == {"a": 1}
    with pytest.raises(AttributeError, match="frozen"):
        back.kind = K.SUCCESS


def test_a_repr_is_short_and_tells_kind_and_value() -> None:
    assert repr(Outcome.success(1)) == "<Outcome success: 1>"
    assert repr(Outcome.failure(K.TRANSIENT_FAILURE, OSError("x"))) == "<Outcome transient_failure: 'OSError: x'>"


def test_a_verdict_has_a_kind_and_optionally_a_hint_and_evidence() -> None:
    plain, full = Verdict(K.PARTIAL), Verdict(K.TRANSIENT_FAILURE, retry_after=2, evidence=Evidence.SUCCESS)
    assert (plain.kind, plain.retry_after, plain.evidence) == (K.PARTIAL, None, None)
    assert (full.retry_after, full.evidence) == (2, Evidence.SUCCESS)
