"""Settings: holdfast.toml, then the environment, then code."""

from __future__ import annotations

import os
from ipaddress import ip_address

import pytest

from holdfast import (
    Breaker,
    ConfigurationError,
    EngineConfig,
    Holdfast,
    PolicyError,
    Retry,
    Settings,
    Timeout,
    WebhookPublisher,
    count,
    slow_ratio,
)
from holdfast.access.serving import Limits, ServerPolicy
from holdfast.config import DEFAULT, IN_ENVIRONMENT, IN_FILE
from holdfast.outbox.publishers.address import public_and
from holdfast.server.api import create_app
from holdfast.workflows.tasks.builtin import builtin_tasks
from tests.server.clients import API, ELSEWHERE, client_of

SHOP = """
url = "memory://"
quorum = 2
audit_key = "k3y"

[capacity]
total = 5000

[schedule.service_levels]
mail = "PT2H"

[guards.payments]
retry = { attempts = 4, base = 0.2 }
breaker = { opens_on = [{ count = 5, window = 30 }, { slow_ratio = 0.5, threshold = 2 }], open_for = 10 }
timeout = { total = 10 }
dead_letter = true
"""


@pytest.fixture(autouse=True)
def alone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("HOLDFAST_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def write(tmp_path):
    return lambda text: (tmp_path / "holdfast.toml").write_text(text)


def test_without_a_file_everything_has_its_default():
    settings = Settings.load()
    assert settings.url is None
    assert settings.quorum == 1
    assert {origin.origin for origin in settings.origins()} == {DEFAULT}


def test_the_file_is_read_the_environment_goes_before_it_and_code_before_both(write, monkeypatch):
    write(SHOP)
    monkeypatch.setenv("HOLDFAST_QUORUM", "3")
    monkeypatch.setenv("HOLDFAST_CAPACITY__PER_DOMAIN", "7")
    settings = Settings.load()
    assert (settings.quorum, settings.capacity.total, settings.capacity.per_domain) == (3, 5000, 7)
    assert Settings.load(quorum=9).quorum == 9
    origins = {origin.name: origin.origin for origin in settings.origins()}
    assert origins["quorum"] == origins["capacity.per_domain"] == IN_ENVIRONMENT
    assert origins["capacity.total"] == origins["guards.payments.retry"] == IN_FILE
    assert origins["recovery.lease_s"] == DEFAULT


def test_a_guard_of_the_settings_is_made_when_it_is_asked_for_by_name(write):
    write(SHOP)
    with Holdfast.from_settings() as hold:
        guard = hold.guard("payments")
        assert guard.policies == (
            Retry(attempts=4, base=0.2),
            Breaker(count(5, window=30), slow_ratio(0.5, threshold=2), open_for=10),
            Timeout(total=10),
        )
        assert guard.dead_letter is not None
        assert hold.guard("payments") is guard
        with pytest.raises(PolicyError, match="there is no guard 'mail' yet"):
            hold.guard("mail")


def test_a_guard_that_code_makes_is_as_the_code_says(write):
    write(SHOP)
    with Holdfast.from_settings() as hold:
        assert hold.guard("payments", Retry(attempts=1)).policies == (Retry(attempts=1),)


def test_a_field_of_a_policy_can_come_from_the_environment(write, monkeypatch):
    write(SHOP)
    monkeypatch.setenv("HOLDFAST_GUARDS__PAYMENTS__RETRY__ATTEMPTS", "7")
    with Holdfast.from_settings() as hold:
        assert hold.guard("payments").policies[0] == Retry(attempts=7, base=0.2)


def test_options_of_the_code_go_before_the_settings(write, tmp_path):
    write(SHOP)
    with Holdfast.from_settings(url=f"sqlite:///{tmp_path / 'other.db'}") as hold:
        assert hold.store.url.endswith("other.db")
        assert hold.letters.box.room.capacity.total == 5000


def test_secrets_are_not_shown(write):
    write('url = "postgresql://ann:hunter2@db/shop"\naudit_key = "k3y"\n')
    shown = str([origin.value for origin in Settings.load().origins()])
    assert "hunter2" not in shown
    assert "k3y" not in shown
    assert Settings.load().key == b"k3y"


@pytest.mark.parametrize(
    ("text", "story"),
    [
        ("urll = 'x'", "there is no setting 'urll'; there are url, app"),
        ("quorum = 0", "quorum: Input should be greater than or equal to 1, got 0"),
        ("[recovery]\nconcurency = 1", "recovery has no 'concurency'; it has concurrency"),
        ("[recovery]\nconcurrency = 0", "RecoveryPolicy.concurrency must be at least 1, got 0"),
        ("[worker]\npoll_s = 'often'", "worker.poll_s: Input should be a valid number"),
        ("[guards.mail]\nretri = true", "guards.mail.retri: there is no such policy; there are retry"),
        ("[guards.mail]\nretry = { attemps = 1 }", "guards.mail.retry has no 'attemps'; it has attempts"),
        ("[guards.mail]\nretry = { attempts = 0 }", "guards.mail.retry: Retry.attempts must be at least 1, got 0"),
        ("[guards.mail]\nretry = 3", "guards.mail.retry must be a table of its fields"),
        ("[guards.mail]\nretry = { on_retry = 'x' }", "guards.mail.retry has no 'on_retry'"),
        ("[guards.mail]\nbreaker = { opens_on = [{ cuont = 5 }] }", r"opens_on\[0\] must be a table with one of"),
        ("[guards.mail]\nbreaker = { opens_on = { count = 0 } }", "count.n must be a whole number"),
        ("[guards.mail]\ndead_letter = 'maybe'", "guards.mail.dead_letter must be true or false"),
        ("url = ", "holdfast.toml is no TOML"),
    ],
)
def test_a_wrong_setting_is_named(write, text, story):
    write(text)
    with pytest.raises((ConfigurationError, PolicyError), match=story):
        Settings.load()


def test_a_file_that_is_named_must_be_there(monkeypatch):
    monkeypatch.setenv("HOLDFAST_CONFIG", "elsewhere.toml")
    with pytest.raises(ConfigurationError, match=r"there is no file 'elsewhere.toml'"):
        Settings.load()


def test_a_program_without_a_store_is_told_where_to_name_one():
    with pytest.raises(ConfigurationError, match="set HOLDFAST_URL, or url in"):
        Holdfast.from_settings()


SERVED = """
url = "memory://"
webhook_reach = ["public", "10.0.0.0/8"]

[server]
port = 9000
hosts = ["console.example.com"]
https = true

[server.limits]
reads = [0.001, 10]

[workflows.engine]
lease_ttl_seconds = 10

[workflows.handler]
max_workers = 4

[workflows.resilience]
circuit_failure_threshold = "3/10"

[workflows.resilience.bulkheads.mail]
max_concurrent = 2
"""


def test_the_server_is_as_the_file_says_then_the_environment_then_code(write, monkeypatch):
    write(SERVED)
    monkeypatch.setenv("HOLDFAST_SERVER__HOST", "127.0.0.2")
    monkeypatch.setenv("HOLDFAST_SERVER__HOSTS", "a.example, b.example")
    monkeypatch.setenv("HOLDFAST_SERVER__LIMITS__CHANGES", "[1, 2]")
    with Holdfast.from_settings() as hold:
        policy = hold.serving
        assert policy == ServerPolicy(
            host="127.0.0.2", port=9000, hosts=("a.example", "b.example"), https=True,
            limits=Limits(reads=(0.001, 10), changes=(1, 2)),
        )  # fmt: skip
    assert Holdfast("memory://", background=False).serving == ServerPolicy()
    origins = {origin.name: origin for origin in Settings.load().origins()}
    assert (origins["server.port"].value, origins["server.port"].origin) == (9000, IN_FILE)
    assert origins["server.host"].origin == origins["server.limits.changes"].origin == IN_ENVIRONMENT
    assert origins["server.limits.address"].origin == DEFAULT


def test_the_application_and_its_code_agree_on_what_the_settings_say(write):
    write(SERVED)
    with Holdfast.from_settings() as hold:
        for app, host, status in (
            (create_app(hold), "console.example.com", 200), (create_app(hold), "other.example", 400),
            (create_app(hold, hosts=["other.example"]), "other.example", 200),
        ):  # fmt: skip
            assert client_of(app).get(f"{API}/health", headers={"Host": host}).status_code == status
        limited = client_of(create_app(hold, required=True), client=ELSEWHERE)
        assert [limited.get(f"{API}/letters").status_code for _ in range(11)][-2:] == [401, 429]


def test_workflows_run_as_the_file_says_then_the_environment_by_either_name(write, monkeypatch):
    write(SERVED)
    monkeypatch.setenv("HOLDFAST_LEASE_HEARTBEAT_S", "2")
    monkeypatch.setenv("HOLDFAST_PROCESSOR_MAX_WORKERS", "5")
    monkeypatch.setenv("HOLDFAST_WORKFLOWS__HANDLER__MAX_WORKERS", "6")
    monkeypatch.setenv("HOLDFAST_WORKFLOWS__ENGINE__MERGE_STRICT", "yes")
    with Holdfast.from_settings() as hold:
        configs = hold.workflows.configs
        assert (configs.engine.lease_ttl_seconds, configs.engine.lease_heartbeat_seconds) == (10, 2)
        assert (configs.handler.max_workers, configs.engine.merge_strict) == (6, True)
        assert configs.resilience.failures_to_open == 3
        assert configs.resilience.get_bulkhead("mail").max_concurrent == 2
        assert configs.resilience.get_bulkhead("http").max_concurrent == 10
    with Holdfast.from_settings(workflows=EngineConfig(lease_ttl_seconds=7)) as hold:
        configs = hold.workflows.configs
        assert (configs.engine.lease_ttl_seconds, configs.handler.max_workers) == (7, 6)
    origins = {origin.name: origin.origin for origin in Settings.load().origins()}
    assert origins["workflows.engine.lease_ttl_seconds"] == IN_FILE
    assert origins["workflows.engine.lease_heartbeat_seconds"] == IN_ENVIRONMENT
    assert origins["workflows.handler.max_workers"] == IN_ENVIRONMENT


def test_a_bulkhead_of_the_environment_goes_before_that_of_the_file(write, monkeypatch):
    write(SERVED)
    monkeypatch.setenv("HOLDFAST_BULKHEAD_MAIL_MAX_CONCURRENT", "9")
    with Holdfast.from_settings() as hold:
        assert hold.workflows.configs.resilience.get_bulkhead("mail").max_concurrent == 9


@pytest.mark.parametrize("in_environment", [True, False])
def test_a_threshold_means_the_same_wherever_it_is_written(write, monkeypatch, in_environment):
    if in_environment:
        monkeypatch.setenv("HOLDFAST_CIRCUIT_FAILURE_THRESHOLD", "5/20")
    else:
        write('[workflows.resilience]\ncircuit_failure_threshold = "5/20"\n')
    settings = Settings.load()
    configs = settings.workflow_configs()
    assert (configs.resilience.window, configs.resilience.failures_to_open) == (20, 5)
    shown = {origin.name: origin.value for origin in settings.origins()}
    assert shown["workflows.resilience.circuit_failure_threshold"] == "5/20"


def test_settings_without_workflows_leave_them_to_their_own_variables(monkeypatch):
    assert Settings.load().workflow_configs() is None
    monkeypatch.setenv("HOLDFAST_LEASE_TTL_S", "9")
    with Holdfast.from_settings(url="memory://") as hold:
        assert hold.workflows.configs.engine.lease_ttl_seconds == 9


def test_the_database_of_workflows_is_not_shown_with_its_password(write, monkeypatch):
    write('[workflows.resilience]\ndatabase_url = "postgresql://ann:hunter2@db/flows"\n')
    assert "hunter2" not in str([origin.value for origin in Settings.load().origins()])
    monkeypatch.setenv("HOLDFAST_DATABASE_URL", "postgresql://ann:swordfish@db/flows")
    assert "swordfish" not in str([origin.value for origin in Settings.load().origins()])


@pytest.mark.parametrize("listed", ['webhook_reach = ["127.0.0.1"]', 'webhook_reach = "public, 127.0.0.1"'])
def test_webhooks_go_where_the_file_lets_them_unless_the_environment_says_otherwise(write, monkeypatch, listed):
    def reaches(address):
        with Holdfast.from_settings(url=f"sqlite:///{os.getcwd()}/shop.db", background=False) as hold:
            publisher = WebhookPublisher("https://hooks.example/", "whsec_c2VjcmV0c2VjcmV0c2VjcmV0")
            hold.publishers.register(publisher)
            return publisher._reach("hooks.example", ip_address(address))

    assert not reaches("127.0.0.1")
    assert reaches("8.8.8.8")
    write(listed)
    assert reaches("127.0.0.1")
    assert reaches("8.8.8.8") is ("public" in listed)
    monkeypatch.setenv("HOLDFAST_WEBHOOK_REACH", "10.0.0.0/8")
    assert not reaches("127.0.0.1")
    assert reaches("10.1.2.3")
    assert Settings.load().webhook_reach == ("10.0.0.0/8",)


def test_http_tasks_go_where_the_file_lets_webhooks_go(write):
    def reaches(address, **asked):
        with Holdfast.from_settings(url=f"sqlite:///{os.getcwd()}/shop.db", background=False) as hold:
            task = hold.workflows.registry.register("http", builtin_tasks(**asked)["http"])
            return task._reach("api.example", ip_address(address))

    assert reaches("8.8.8.8")
    assert not reaches("10.1.2.3")
    assert reaches("10.1.2.3", reach=public_and("10.0.0.0/8"))
    write('webhook_reach = ["10.1.0.0/16"]')
    assert reaches("10.1.2.3")
    assert not reaches("8.8.8.8")
    assert not reaches("10.2.2.3", reach=public_and("10.0.0.0/8"))


@pytest.mark.parametrize(
    ("text", "story"),
    [
        ("[server]\nprot = 1", "server has no 'prot'; it has host, port"),
        ("[server]\nport = 70000", "ServerPolicy.port must be from 0 to 65535, got 70000"),
        (
            "[server]\nhosts = ['https://x']",
            "ServerPolicy.hosts must be names such as console.example.com",
        ),
        ("[server.limits]\nwrites = [1, 1]", "server.limits has no 'writes'; it has body_bytes, reads"),
        ("[server.limits]\nreads = [0, 1]", "Limits.reads: .*rate_per_s"),
        ("[server.limits]\nbody_bytes = 0", "Limits.body_bytes must be at least 1, got 0"),
        ("[server.limits]\nat_once = 0", "Limits.at_once must be at least 1"),
        ("[server.limits]\npatience_s = 0", "Limits.patience_s must be a finite number of seconds above 0"),
        ("[workflows.motor]\nx = 1", "workflows has no table 'motor'; it has resilience, handler, engine"),
        ("[workflows]\nlease_ttl_seconds = 1", "workflows"),
        ("[workflows.engine]\nlease = 1", "workflows.engine has no 'lease'; it has isolation_mode"),
        ("[workflows.engine]\nlease_ttl_seconds = 0", "workflows.engine.lease_ttl_seconds must be a number above 0"),
        ("[workflows.engine]\nlease_ttl_seconds = 0.6", "workflows.engine: .* must be at least twice"),
        ("[workflows.engine]\ndrift_policy = 'shout'", "drift_policy must be one of ignore, warn, refuse, got 'shout'"),
        ("[workflows.resilience]\nbulkheads = 3", "workflows.resilience.bulkheads must be a table for each type"),
        ("[workflows.resilience.bulkheads.mail]\nsize = 1", "bulkheads.mail has no 'size'; it has max_concurrent"),
        ("webhook_reach = ['a b']", "webhook_reach: 'a b' is no host, address or network"),
        ("webhook_reach = 3", "webhook_reach"),
    ],
)
def test_what_cannot_be_said_of_server_workflows_and_webhooks_is_named(write, text, story):
    write(text)
    with pytest.raises((ConfigurationError, PolicyError), match=story):
        Settings.load()


def test_a_variable_of_workflows_that_cannot_be_is_named(monkeypatch):
    monkeypatch.setenv("HOLDFAST_LEASE_TTL_S", "soon")
    with pytest.raises(ConfigurationError, match="HOLDFAST_LEASE_TTL_S must be a number"):
        Settings.load()
