"""The doctor finds what is wrong, and only that."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast import (
    BackoffPolicy,
    Breaker,
    Bulkhead,
    CancelWorkflow,
    Capacity,
    Chaos,
    ConfigurationError,
    EngineConfig,
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
from tests.server.calls import calling
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


def test_a_guard_that_a_task_or_an_operation_calls_inside_is_a_second_layer(hold):
    mail = hold.guard("mail", *SOUND)
    once = hold.guard("once", Retry(attempts=1), Timeout(total=2))

    @mail
    def post(address):
        return address

    @once
    def look_up(address):
        return address

    def helper(address):
        return post(address)

    @task(retry=Retry(attempts=4))
    def write(address):
        return helper(look_up(address))

    @hold.operation(max_attempts=2)
    def send(address: str):
        return post(address)

    @hold.operation
    @mail
    def tell(address: str):
        return None

    hold.workflows.register(write)
    found = {one.where: one.what for one in examine(hold).findings if one.rule.name == "two-retry-layers"}
    story = "it is tried again by itself, and guard 'mail', which it calls, retries as well: up to {} calls"
    assert found == {
        "task 'write'": story.format(12),
        "operation 'send'": story.format(6),
        "operation 'tell'": story.format(24),
    }


def test_guards_inside_guards_that_retry_another_failure_domain_are_found(hold):
    orders = hold.guard("orders", Retry(attempts=4, base=0.1, domain="orders"), Timeout(total=30, attempt=2))
    stock = hold.guard("stock", Retry(attempts=3, base=0.1, domain="stock"), Timeout(total=30, attempt=2))

    @stock
    def reserve(order):
        return order

    @orders
    def place(order):
        return reserve(order)

    (finding,) = [one for one in examine(hold).findings if one.rule.name == "nested-retries"]
    assert finding.where == "guard 'orders'"
    assert "calls guard 'stock'" in finding.what
    assert "up to 12 calls" in finding.what
    assert orders.functions == (place,)


def test_guards_inside_guards_of_one_failure_domain_defer_and_are_no_fault(hold):
    inner, outer = hold.guard("inner", *SOUND), hold.guard("outer", *SOUND)

    @inner
    def ask():
        return 1

    @outer
    def asks():
        return ask()

    @outer
    def recurses():
        return recurses()

    @task(guard="outer", retry=Retry(attempts=1))
    def through():
        return ask()

    hold.workflows.register(through)
    assert outer.functions == (asks, recurses)
    assert not {"nested-retries", "two-retry-layers"} & names(examine(hold))


def test_a_guard_that_repeats_what_must_not_be_repeated_is_an_error(hold):
    @task(guard="payments", effect="at_least_once")
    def pay(order):
        return order

    @task(guard="search")
    def look(order):
        return order

    hold.workflows.register(pay)
    hold.workflows.register(look)
    hold.guard("payments", *SOUND)  # made after the task, which could not see it
    hold.guard("search", Hedge(), Timeout(total=3))
    found = {one.where: one for one in examine(hold).findings if one.rule.name == "unsafe-repeat"}
    assert set(found) == {"task 'pay'", "task 'look'"}
    assert found["task 'pay'"].rule.severity is Severity.ERROR
    assert "is at_least_once and is retried by guard 'payments'" in found["task 'pay'"].what
    assert "hedges: two calls at once" in found["task 'look'"].what
    assert "declare it" in found["task 'pay'"].fix
    with pytest.raises(AssertionError, match="HF111 error: task 'pay'"):
        assert_healthy(hold)


def test_hedging_is_no_matter_where_all_that_goes_through_it_is_declared_idempotent(hold):
    hedged = hold.guard("search", Hedge(), Timeout(total=3))

    @task(guard="search", effect="idempotent", retry=Retry(attempts=1))
    def look(text):
        return text

    hold.workflows.register(look)
    assert not {"hedging", "unsafe-repeat"} & names(examine(hold))

    @hedged
    def undeclared(text):
        return text

    assert hedged.functions == (undeclared,)
    assert "hedging" in names(examine(hold))


def test_a_call_of_the_outbox_that_outlasts_its_lease_is_found(hold):
    @hold.operation(timeout=timedelta(minutes=6))
    def send(address: str):
        return None

    (finding,) = [one for one in examine(hold).findings if one.rule.name == "short-lease"]
    assert finding.where == "operation 'send'"
    assert finding.what == "a call may take 360 s, and an entry is leased for 300 s"
    hold.runner(backoff=BackoffPolicy(lease=timedelta(minutes=10)))
    assert "short-lease" not in names(examine(hold))


def test_a_replay_that_outlasts_the_silence_it_is_allowed_is_found(hold):
    guard = hold.guard("reports", Retry(attempts=2, base=0), Timeout(total=600, attempt=300), dead_letter=True)
    guard.replayable(len)
    (finding,) = [one for one in examine(hold).findings if one.rule.name == "short-lease"]
    assert finding.where == "guard 'reports'"
    assert finding.what == "a replay may take 600 s, and one that is silent for 300 s is given to another"


def test_a_lease_with_too_few_heartbeats_is_found(tmp_path):
    config = EngineConfig(lease_ttl_seconds=2, lease_heartbeat_seconds=1)
    with Holdfast(f"sqlite:///{tmp_path / 'a.db'}", workflows=config, audit_key=b"k3y", background=False) as hold:
        (finding,) = examine(hold).findings
        assert (finding.rule.id, finding.rule.severity) == ("HF205", Severity.WARNING)
        assert finding.what == "a worker's lease of 2 s has room for 2 heartbeats, one each 1 s"
        assert "3 or more" in finding.fix


def test_a_task_that_a_stall_would_repeat_is_a_hint(tmp_path):
    @task(effect="at_least_once", timeout=30)
    def pay():
        return None

    @task(effect="idempotent", timeout=30)
    def look():
        return None

    def diagnosis(**config):
        url = f"sqlite:///{tmp_path / 'a.db'}"
        with Holdfast(url, workflows=EngineConfig(**config), audit_key=b"k3y", background=False) as hold:
            hold.workflows.register(pay)
            hold.workflows.register(look)
            return examine(hold)

    (finding,) = diagnosis().findings
    assert (finding.rule.id, finding.rule.severity, finding.where) == ("HF206", Severity.HINT, "task 'pay'")
    assert finding.what == "it is at_least_once and may take 30 s, and its worker's lease is 3 s"
    assert not diagnosis(lease_ttl_seconds=60).findings


def test_stuck_sagas_are_found(tmp_path):
    clock = ManualClock()
    with calling("sqlite", tmp_path, clock) as shop:
        assert "stuck-sagas" not in names(examine(shop.hold))
        shop.down.add("ship")  # past its pivot a saga cannot be undone
        shop.start()
        shop.run(clock, rounds=6)
        (finding,) = [one for one in examine(shop.hold).findings if one.rule.name == "stuck-sagas"]
        assert (finding.rule.id, finding.rule.severity) == ("HF306", Severity.ERROR)
        assert finding.what == "1 saga is stuck"


def test_work_that_no_worker_can_take_is_found(hold):
    @task
    def here():
        return None

    @workflow
    def flow():
        return here()

    assert "stranded-workflows" not in names(examine(hold))
    run = hold.workflows.start(flow)
    (finding,) = [one for one in examine(hold).findings if one.rule.name == "stranded-workflows"]
    assert (finding.rule.id, finding.where, finding.what) == ("HF308", f"workflow {run.id}", "no worker is there")
    hold.worker().run_once()
    assert "stranded-workflows" not in names(examine(hold))


def test_dead_items_are_found(hold):
    hold.workflows.queue.push(CancelWorkflow(execution_id="nowhere", message_id="m-1", max_attempts=1))
    assert "dead-items" not in names(examine(hold))
    hold.workflows.worker().run_once()
    (finding,) = [one for one in examine(hold).findings if one.rule.name == "dead-items"]
    assert (finding.rule.id, finding.what) == ("HF309", "1 item is dead")


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
