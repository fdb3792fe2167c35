"""Events of the audit trail as sentences."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.audit.event import AuditEvent
from holdfast.views.audit import cursor_of, cursor_text, sentence


def said(type: str, subject: str = "o-1", **facts: Any) -> str:
    return sentence(AuditEvent(event_type=type, subject_ref=subject, payload=facts))


@pytest.mark.parametrize(
    ("type", "facts", "words"),
    [
        (
            "operation_failed",
            {"operation": "mail", "target": "smtp", "error": "Refused"},
            "mail to smtp failed: Refused",
        ),
        ("operation_succeeded", {"operation": "ship", "target": "ship"}, "ship succeeded"),
        ("send_verification_failed", {"target": "crm"}, "send to crm verification failed"),
        ("erasure_requested", {}, "erasure requested"),
        ("saga_stuck", {"definition": "order", "reason": "ship: Refused"}, "saga order stuck: ship: Refused"),
        ("trail_verified", {"by": "ann", "events": 7, "streams": 2}, "ann found 7 events in 2 streams in order"),
        ("trail_broken", {"by": "ann", "broken": 1, "streams": 2}, "ann found 1 of 2 streams broken"),
    ],
)
def test_what_happened_is_said_in_words(type: str, facts: dict[str, Any], words: str) -> None:
    assert said(type, **facts) == words


def test_who_asked_for_what_on_which_thing_and_why_is_a_sentence() -> None:
    ann = "operator:ann"
    acted = said("operator_acted", ann, act="outbox.requeue", on_id="7", reason="the relay is up")
    assert acted == "ann asked to requeue outbox entry 7: the relay is up"
    assert said("operator_acted", ann, act="outbox.pause", on_queue="mail") == "ann asked to pause outbox queue mail"
    assert said("operator_acted", ann, act="audit.take_checkpoints") == "ann asked to take checkpoints (audit)"
    assert said("operator_acted", ann) == "ann asked to do what the event does not name"
    failed = said("operator_act_failed", ann, act="sagas.resolve", on_id="7", error="Conflict")
    assert failed == "ann could not resolve saga 7 (Conflict)"


def test_a_fact_with_a_secret_name_is_not_in_the_sentence() -> None:
    assert "hunter2" not in said("operator_acted", "operator:ann", act="access.add", on_password="hunter2")


def test_a_cursor_comes_back_as_it_was() -> None:
    event = AuditEvent(event_type="consent_granted", subject_ref="ann")
    cursor = event.occurred_at, event.event_id
    assert cursor_of(cursor_text(cursor)) == cursor
    assert cursor_of("yesterday") is None
