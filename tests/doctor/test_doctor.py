"""The doctor finds what is wrong, and only that."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast import (
    Breaker,
    Bulkhead,
    Capacity,
    Chaos,
    ConfigurationError,
    Hedge,
    Holdfast,
    Retry,
    Timeout,
    examine,
    task,
    workflow,
)
from holdfast.doctor.rules import RULES, Severity
from holdfast.letters.maintenance import Schedule
from holdfast.testing import ManualClock, assert_healthy
from tests.services import postgres, redis

SOUND = (Retry(attempts=3, base=0.1), Breaker(), Timeout(total=30, attempt=2))


@pytest.fixture
def hold(tmp_path):
    with Holdfast(f"sqlite:///{tmp_path / 'shop.db'}", audit_key=b"k3y", background=False) as hold:
        yield hold


def names(diagnosis):
    return {finding.rule.name for finding in diagnosis.findings}


def test_a_sound_program_is_healthy(hold):
    guard = hold.guard("payments", *SOUND, dead_letter=True)
    guard.replayable(len)

    @task(guard="payments", retry=Retry(attempts=1))
    def pay(order):
        return order

    hold.workflows.register(pay)
    diagnosis = examine(hold)
    assert diagnosis.is_healthy, str(diagnosis)
    assert str(diagnosis) == "nothing found"
    assert_healthy(hold, store=True)


@pytest.mark.parametrize(
    ("policies", "options", "rule"),
    [
        ((Retry(),), {}, "no-timeout"),
        ((Breaker(),), {}, "no-timeout"),
        ((Retry(attempts=None), Timeout(attempt=1)), {}, "endless-retry"),
        ((Retry(attempts=3), Timeout(attempt=1)), {}, "unbounded-waits"),
        ((Retry(attempts=5, base=0), Timeout(total=4, attempt=2)), {}, "attempts-cut"),
        ((Bulkhead(1, queue=5),), {}, "endless-queue"),
        ((*SOUND,), {"order": ("timeout", "breaker", "retry", "attempt_timeout")}, "breaker-outside"),
        ((Hedge(), Timeout(total=3)), {}, "hedging"),
        ((Chaos(enabled=True), Timeout(total=3)), {}, "chaos"),
        ((Retry(attempts=6), Hedge(), Timeout(total=60)), {}, "many-calls"),
        (SOUND, {"dead_letter": True}, "nobody-replays"),
    ],
)
def test_each_fault_of_a_guard_is_found(hold, policies, options, rule):
    hold.guard("sound", *SOUND)
    assert rule not in names(examine(hold))
    hold.guard("odd", *policies, **options)
    finding, *_ = [one for one in examine(hold).findings if one.rule.name == rule]
    assert finding.where == "guard 'odd'"
    assert finding.fix


def test_retries_at_two_layers_are_found_with_what_they_come_to(hold):
    hold.guard("mail", *SOUND)

    @task(guard="mail", retry=Retry(attempts=4))
    def write(address):
        return address

    @hold.operation(guard=hold.guard("mail"), max_attempts=2)
    def send(address: str):
        return None

    hold.workflows.register(write)
    found = {one.where: one.what for one in examine(hold).findings if one.rule.name == "two-retry-layers"}
    assert "up to 12 calls" in found["task 'write'"]
    assert "up to 6 calls" in found["operation 'send'"]


def test_a_guard_that_outlives_its_caller_is_found(hold):
    hold.guard("slow", Timeout(total=60))

    @task(guard="slow", timeout=5)
    def ask():
        return None

    hold.workflows.register(ask)
    (finding,) = [one for one in examine(hold).findings if one.rule.name == "outlives-caller"]
    assert finding.what == "it has 5 s, and guard 'slow' may take up to 60 s"


def test_a_guard_that_does_not_exist_is_found(hold):
    @task(guard="nowhere")
    def ask():
        return None

    hold.workflows.register(ask)
    assert "unknown-guard" in names(examine(hold))


def test_letters_that_nothing_can_replay_are_found_only_in_a_program(hold):
    hold.letters.create("ghosts", "boom")
    assert "orphaned-letters" not in names(examine(hold))
    hold.guard("payments", *SOUND)
    assert "orphaned-letters" in names(examine(hold))


def test_letters_of_workflows_are_nobodys_orphans(hold):
    @task
    def fail():
        raise ValueError("no")

    @workflow
    def failing():
        return fail()

    hold.guard("payments", *SOUND)
    hold.workflows.start(failing)
    hold.worker().run_once()
    assert hold.letters.count(status="pending") == 1
    assert "orphaned-letters" not in names(examine(hold))


def test_letters_past_their_service_level_are_found(tmp_path):
    clock = ManualClock()
    schedule = Schedule(service_levels={"mail": timedelta(hours=2)})
    with Holdfast(f"sqlite:///{tmp_path / 'a.db'}", clock=clock, schedule=schedule, background=False) as hold:
        hold.letters.create("mail", "boom")
        assert "late-letters" not in names(examine(hold))
        clock.advance(2 * 3600 + 1)
        assert "late-letters" in names(examine(hold))


def test_a_store_that_is_nearly_full_is_found(tmp_path):
    with Holdfast(f"sqlite:///{tmp_path / 'a.db'}", capacity=Capacity(total=10), background=False) as hold:
        for _ in range(8):
            hold.letters.create("mail", "boom")
        assert "full-letters" not in names(examine(hold))
        hold.letters.create("mail", "boom")
        assert "full-letters" in names(examine(hold))


def test_what_was_spooled_and_a_spool_that_cannot_be_are_found(tmp_path):
    spool = tmp_path / "spool"
    spool.write_text("{}\n")
    with Holdfast(f"sqlite:///{tmp_path / 'a.db'}", spool=spool, background=False) as hold:
        assert "spooled-letters" in names(examine(hold))
    with Holdfast(f"sqlite:///{tmp_path / 'a.db'}", spool=tmp_path / "none" / "at all", background=False) as hold:
        assert "spool-unwritable" in names(examine(hold))


def test_abandoned_entries_and_failed_workflows_are_found(hold):
    @hold.operation(max_attempts=1)
    def send(address: str):
        raise ValueError(address)

    @task
    def fail():
        raise ValueError("no")

    @workflow
    def failing():
        return fail()

    with hold.sessions.begin() as session:
        hold.outbox.put(session, "send", {"address": "ann"}, target="mail")
    hold.workflows.start(failing)
    assert not {"abandoned-entries", "failed-workflows"} & names(examine(hold))
    hold.worker().run_once()
    assert {"abandoned-entries", "failed-workflows"} <= names(examine(hold))


def test_a_store_that_is_away_is_said_and_nothing_else_is_guessed():
    with Holdfast("postgresql://nobody@127.0.0.1:1/none", background=False) as hold:
        diagnosis = examine(hold)
        assert names(diagnosis) == {"store-away"}
        assert diagnosis.unseen
        assert not diagnosis.is_healthy
        with pytest.raises(AssertionError, match="HF401"):
            assert_healthy(hold, store=True)


def test_tables_of_another_revision_are_said():
    with Holdfast(postgres.server().fresh_database(), background=False) as hold:
        diagnosis = examine(hold)
        assert names(diagnosis) == {"old-schema"}
        assert "db upgrade" in diagnosis.findings[0].fix


def test_a_store_in_memory_and_a_redis_that_forgets_are_found():
    with Holdfast("memory://", background=False) as hold:
        assert "forgets" in names(examine(hold))
    server = redis.private_server("--appendonly", "no")
    with Holdfast(server.fresh(), background=False) as hold:
        assert "not-durable" in names(examine(hold))
    server.stop()


def test_a_clock_that_is_off_is_found(tmp_path):
    with Holdfast(f"sqlite:///{tmp_path / 'a.db'}", clock=ManualClock(), background=False) as hold:
        (finding,) = [one for one in examine(hold).findings if one.rule.name == "clock-skew"]
        assert "behind this host's" in finding.what


def test_a_trail_without_a_key_is_a_hint(tmp_path):
    with Holdfast(f"sqlite:///{tmp_path / 'a.db'}", background=False) as hold:
        diagnosis = examine(hold)
        assert names(diagnosis) == {"unkeyed-trail"}
        assert diagnosis.is_healthy


def test_rules_can_be_left_out_by_id_or_name(hold):
    hold.guard("odd", Retry(attempts=None))
    assert {"no-timeout", "endless-retry"} <= names(examine(hold))
    assert not names(examine(hold, ignore=["HF101", "endless-retry"]))
    with pytest.raises(ConfigurationError, match="there is no rule 'HF999'"):
        examine(hold, ignore=["HF999"])
    with pytest.raises(ConfigurationError, match=r"write \['HF101'\]"):
        examine(hold, ignore="HF101")


def test_the_assertion_names_what_is_wrong(hold):
    hold.guard("odd", Retry(attempts=None))
    with pytest.raises(AssertionError, match=r"HF102 error: guard 'odd': unlimited attempts"):
        assert_healthy(hold)
    assert_healthy(hold, ignore=["HF101", "HF102"])


def test_the_worst_comes_first(hold):
    hold.guard("odd", Retry(attempts=None), Hedge())
    severities = [finding.rule.severity for finding in examine(hold).findings]
    assert severities == sorted(severities, key=list(Severity).index)


def test_no_two_rules_have_the_same_id_or_name():
    assert len({rule.id for rule in RULES}) == len({rule.name for rule in RULES}) == len(RULES)
