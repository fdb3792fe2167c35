"""Configurations: what they hold, refuse and read, their fingerprints, and what has changed between two of them."""

from __future__ import annotations

import copy
import json
import math
import os
import pickle
import subprocess
import sys
from dataclasses import FrozenInstanceError, dataclass, fields, replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.environment import settings, variables
from holdfast.errors import ConfigurationError, PolicyError
from holdfast.workflows.config import (
    BackoffConfig,
    BulkheadConfig,
    EngineConfig,
    HandlerConfig,
    ResilienceConfig,
    combined_fingerprint,
    config_drift,
    config_values,
)
from holdfast.workflows.fingerprint import place

READ = (ResilienceConfig, HandlerConfig, EngineConfig)
ALL = (*READ, BulkheadConfig, BackoffConfig)


def at(milliseconds: int) -> float:
    return milliseconds / 1000


def test_the_contracts_defaults() -> None:
    resilience, handler = ResilienceConfig(), HandlerConfig()
    assert (BulkheadConfig().max_concurrent, BulkheadConfig().max_queue_size) == (5, 20)
    assert BulkheadConfig().timeout_seconds == 14400
    assert [(name, limits.max_concurrent, limits.max_queue_size) for name, limits in resilience.bulkheads] == [
        ("shell", 5, 20),
        ("python", 3, 20),
        ("http", 10, 20),
        ("docker", 3, 20),
        ("ssh", 5, 20),
    ]
    assert resilience.circuit_failure_threshold == Fraction(5, 10)
    assert (resilience.circuit_cooldown_seconds, resilience.circuit_cache_size) == (30, 1000)
    assert (resilience.database_url, resilience.circuit_window, resilience.circuit_scope) == (None, None, "workflow")
    assert handler.concurrency_backoff == BackoffConfig() == BackoffConfig(100, 1000, 2.0, 0.25)
    assert handler.error_handling_backoff == BackoffConfig(25, 10000, 2.0, 0.3)
    assert handler.task_backoff == BackoffConfig(1000, 60000, 2.0, 0.25)
    assert (handler.concurrency_max_retries, handler.error_handling_max_retries) == (3, 10)
    assert (handler.max_stage_wait_retries, handler.default_task_timeout_seconds) == (240, 14400)
    assert (handler.handler_retry_delay_seconds, handler.poll_frequency_ms, handler.max_workers) == (15, 50, 10)
    assert (handler.default_page_size, handler.signal_buffer_max) == (100, 1000)


@pytest.mark.parametrize("kind", ALL)
def test_a_configuration_cannot_be_changed(kind: Any) -> None:
    config = kind()
    for item in fields(kind):
        with pytest.raises(FrozenInstanceError):
            setattr(config, item.name, getattr(config, item.name))
    assert pickle.loads(pickle.dumps(config)) == copy.deepcopy(config) == config
    assert hash(config) == hash(kind())


@pytest.mark.parametrize("kind", ALL)
def test_every_field_refuses_what_it_cannot_hold_and_says_what_to_do(kind: Any) -> None:
    for item in fields(kind):
        for value in (object(), math.nan, -1):
            with pytest.raises(PolicyError) as refused:
                kind(**{item.name: value})
            start, _, fix = str(refused.value).partition("; ")
            assert start.startswith(f"{kind.__name__}.{item.name} must be ")
            assert len(fix) > 3
            if item.name != "database_url":
                assert repr(value) in start


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        (BulkheadConfig, {"max_concurrent": 0}),
        (BulkheadConfig, {"max_concurrent": True}),
        (BulkheadConfig, {"max_concurrent": 2.0}),
        (BulkheadConfig, {"max_concurrent": 10_001}),
        (BulkheadConfig, {"timeout_seconds": 0}),
        (BulkheadConfig, {"timeout_seconds": math.inf}),
        (BackoffConfig, {"factor": 0.5}),
        (BackoffConfig, {"jitter": 1.1}),
        (HandlerConfig, {"max_workers": 0}),
        (HandlerConfig, {"max_workers": "10"}),
        (HandlerConfig, {"poll_frequency_ms": 0}),
        (HandlerConfig, {"handler_retry_delay_seconds": 0.0}),
        (HandlerConfig, {"default_task_timeout_seconds": 1e10}),
        (ResilienceConfig, {"circuit_failure_threshold": 0}),
        (ResilienceConfig, {"circuit_failure_threshold": Fraction(11, 10)}),
        (ResilienceConfig, {"circuit_failure_threshold": True}),
        (ResilienceConfig, {"circuit_failure_threshold": math.inf}),
        (ResilienceConfig, {"circuit_failure_threshold": "1/2"}),
        (ResilienceConfig, {"circuit_cooldown_seconds": 0}),
        (ResilienceConfig, {"circuit_cache_size": 0}),
        (ResilienceConfig, {"circuit_window": 0}),
        (ResilienceConfig, {"circuit_window": 10_001}),
        (ResilienceConfig, {"circuit_scope": "process"}),
        (ResilienceConfig, {"circuit_scope": None}),
        (ResilienceConfig, {"bulkheads": (("http", 5),)}),
        (ResilienceConfig, {"bulkheads": (("", BulkheadConfig()),)}),
        (ResilienceConfig, {"bulkheads": (("http", BulkheadConfig()), ("http", BulkheadConfig(3)))}),
        (ResilienceConfig, {"bulkheads": None}),
        (EngineConfig, {"isolation_mode": "fork"}),
        (EngineConfig, {"drift_policy": None}),
        (EngineConfig, {"recovery_enabled": 1}),
        (EngineConfig, {"retention_days": 0}),
    ],
)
def test_values_out_of_range_are_refused(kind: Any, wrong: dict[str, Any]) -> None:
    with pytest.raises(PolicyError, match=f"{kind.__name__}.{next(iter(wrong))} must be"):
        kind(**wrong)


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        (BackoffConfig, {"min_delay_ms": 2000}),
        (HandlerConfig, {"concurrency_min_delay_ms": 1001}),
        (HandlerConfig, {"error_handling_max_delay_ms": 24}),
        (HandlerConfig, {"task_backoff_max_delay_ms": 999}),
        (EngineConfig, {"lease_ttl_seconds": 0.9}),
        (ResilienceConfig, {"circuit_failure_threshold": 0.1 + 0.2}),
    ],
)
def test_values_that_do_not_fit_each_other_are_refused(kind: Any, wrong: dict[str, Any]) -> None:
    name, value = next(iter(wrong.items()))
    with pytest.raises(PolicyError, match=name) as refused:
        kind(**wrong)
    assert str(value) in str(refused.value) or str(Fraction(str(value))) in str(refused.value)


def test_zero_retries_switch_them_off() -> None:
    assert HandlerConfig(concurrency_max_retries=0).concurrency_max_retries == 0


@pytest.mark.parametrize("value", [0.3, Decimal("0.3"), Fraction(3, 10)])
def test_a_threshold_means_its_decimal_digits(value: Any) -> None:
    assert ResilienceConfig(circuit_failure_threshold=value).circuit_failure_threshold == Fraction(3, 10)


@given(st.fractions(Fraction(1, 200), 1, max_denominator=200), st.none() | st.integers(1, 300))
def test_the_failures_that_open_are_the_least_that_reach_the_share(ratio: Fraction, window: int | None) -> None:
    config = ResilienceConfig(circuit_failure_threshold=ratio, circuit_window=window)
    assert config.window == (window or max(10, ratio.denominator))
    assert Fraction(config.failures_to_open, config.window) >= ratio
    assert Fraction(config.failures_to_open - 1, config.window) < ratio
    assert 1 <= config.failures_to_open <= config.window


@given(st.integers(0, 50), st.floats(0, 1, exclude_max=True), st.integers(0, 5000), st.integers(0, 5000))
def test_a_delay_stays_within_its_jitter_and_its_ceiling(k: int, draw: float, low: int, more: int) -> None:
    config = BackoffConfig(low, low + more, 2.0, 0.25)
    plain = min(at(low) * 2**k, at(low + more))
    assert min(0.75 * plain, at(low + more)) - 1e-9 <= config.delay(k, lambda: draw) <= at(low + more)


def test_delays_double_up_to_the_ceiling() -> None:
    waits = [BackoffConfig(jitter=0).delay(k, lambda: 0.5) for k in range(6)]
    assert waits == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]


def test_each_type_has_its_limits_and_the_others_the_default_ones() -> None:
    config = ResilienceConfig()
    assert config.get_bulkhead("http").max_concurrent == 10
    assert config.get_bulkhead("unlisted") == BulkheadConfig()
    assert config.bulkheads_dict()["python"].max_concurrent == 3
    other = ResilienceConfig(bulkheads={"default": BulkheadConfig(1), "send_mail": BulkheadConfig(2)})  # type: ignore[arg-type]
    assert other.bulkheads == (("default", BulkheadConfig(1)), ("send_mail", BulkheadConfig(2)))
    assert [other.get_bulkhead(name).max_concurrent for name in ("http", "Send-Mail", "send.mail")] == [1, 2, 2]
    other.bulkheads_dict().clear()
    assert other.get_bulkhead("send_mail").max_concurrent == 2


NAMES = {
    HandlerConfig: (
        "HANDLER_MAX_RETRIES HANDLER_MIN_DELAY_MS HANDLER_MAX_DELAY_MS HANDLER_BACKOFF_FACTOR HANDLER_JITTER "
        "HANDLER_RETRY_DELAY_S ERROR_MAX_RETRIES ERROR_MIN_DELAY_MS ERROR_MAX_DELAY_MS ERROR_BACKOFF_FACTOR "
        "ERROR_JITTER MAX_STAGE_WAIT_RETRIES SIGNAL_BUFFER_MAX DEFAULT_TASK_TIMEOUT_S TASK_BACKOFF_MIN_MS "
        "TASK_BACKOFF_MAX_MS PROCESSOR_POLL_MS PROCESSOR_MAX_WORKERS DEFAULT_PAGE_SIZE"
    ),
    ResilienceConfig: (
        "CIRCUIT_FAILURE_THRESHOLD CIRCUIT_COOLDOWN_SECONDS CIRCUIT_CACHE_SIZE CIRCUIT_WINDOW CIRCUIT_SCOPE "
        "DATABASE_URL"
    ),
    EngineConfig: (
        "ISOLATION_MODE LEASE_HEARTBEAT_S LEASE_TTL_S RECOVERY_ENABLED RECOVERY_MAX_AGE_HOURS RETENTION_DAYS "
        "MERGE_STRICT DRIFT_POLICY"
    ),
}


@pytest.mark.parametrize("kind", READ)
def test_these_are_the_variables_and_every_field_has_one(kind: Any) -> None:
    listed = variables(kind)
    assert sorted(listed) == sorted(NAMES[kind].split())
    assert set(listed.values()) | {"bulkheads"} >= {item.name for item in fields(kind)}


OTHERS = {  # a value for each variable that is not the default
    "CIRCUIT_FAILURE_THRESHOLD": "0.3",
    "CIRCUIT_SCOPE": "task_type",
    "DATABASE_URL": "postgresql://host/db",
    "ISOLATION_MODE": "process",
    "RECOVERY_ENABLED": "no",
    "MERGE_STRICT": "TRUE",
    "DRIFT_POLICY": "refuse",
    "LEASE_HEARTBEAT_S": "0.25",
    "LEASE_TTL_S": " 9 ",
    "HANDLER_MIN_DELAY_MS": "7",
    "HANDLER_JITTER": "0.5",
    "ERROR_JITTER": ".5",
    "HANDLER_BACKOFF_FACTOR": "1e1",
    "HANDLER_MAX_DELAY_MS": "60001",
    "ERROR_MAX_DELAY_MS": "60001",
    "TASK_BACKOFF_MAX_MS": "60001",
}


@pytest.mark.parametrize("prefix", ["HOLDFAST_", "STABILIZE_"])
@pytest.mark.parametrize("kind", READ)
def test_every_variable_sets_its_field_and_no_other(kind: Any, prefix: str) -> None:
    for variable, field in variables(kind).items():
        config = kind.from_env({prefix + variable: OTHERS.get(variable, "77")})
        assert config == replace(kind(), **{field: getattr(config, field)})
        assert getattr(config, field) != getattr(kind(), field), variable


@pytest.mark.parametrize("kind", READ)
def test_an_empty_environment_gives_the_defaults(kind: Any) -> None:
    assert kind.from_env({}) == kind() == kind.from_env({"PATH": "/bin", "HOLDFAST_URL": "memory://"})


def test_the_real_environment_is_read_unless_another_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STABILIZE_PROCESSOR_MAX_WORKERS", "3")
    assert HandlerConfig.from_env().max_workers == 3
    assert HandlerConfig.from_env({}).max_workers == 10


def test_our_own_prefix_wins() -> None:
    both = {"STABILIZE_PROCESSOR_MAX_WORKERS": "3", "HOLDFAST_PROCESSOR_MAX_WORKERS": "4"}
    assert HandlerConfig.from_env(both).max_workers == 4


@pytest.mark.parametrize("prefix", ["HOLDFAST_", "STABILIZE_"])
@pytest.mark.parametrize("kind", READ)
@pytest.mark.parametrize("text", ["", "many", "-1", "nan", "1_000", "٣", "1e999", "0x10"])
def test_a_bad_value_names_its_variable(kind: Any, prefix: str, text: str) -> None:
    for variable in variables(kind):
        with pytest.raises(ConfigurationError) as refused:
            kind.from_env({prefix + variable: text})
        assert str(refused.value).startswith(f"{prefix}{variable} must be ")
        assert repr(text) in str(refused.value) or variable == "DATABASE_URL"


def test_variables_that_do_not_fit_each_other_are_named() -> None:
    given = {"HOLDFAST_HANDLER_MIN_DELAY_MS": "5000", "HOLDFAST_PROCESSOR_MAX_WORKERS": "3"}
    with pytest.raises(ConfigurationError, match=r"\(from HOLDFAST_HANDLER_MIN_DELAY_MS\)$"):
        HandlerConfig.from_env(given)
    given["STABILIZE_HANDLER_MAX_DELAY_MS"] = "4999"
    with pytest.raises(ConfigurationError, match=r"HOLDFAST_HANDLER_MIN_DELAY_MS, STABILIZE_HANDLER_MAX_DELAY_MS"):
        HandlerConfig.from_env(given)


@pytest.mark.parametrize(
    ("text", "ratio", "window", "failures"),
    [
        ("5/10", Fraction(1, 2), 10, 5),
        ("0.5", Fraction(1, 2), 10, 5),
        ("1", Fraction(1), 10, 10),
        ("3/10", Fraction(3, 10), 10, 3),
        ("0.15", Fraction(3, 20), 20, 3),
        ("5/20", Fraction(1, 4), 20, 5),
        ("1/2", Fraction(1, 2), 10, 5),
        ("10 / 100", Fraction(1, 10), 100, 10),
    ],
)
def test_a_threshold_of_the_environment(text: str, ratio: Fraction, window: int, failures: int) -> None:
    config = ResilienceConfig.from_env({"HOLDFAST_CIRCUIT_FAILURE_THRESHOLD": text})
    assert (config.circuit_failure_threshold, config.window, config.failures_to_open) == (ratio, window, failures)


def test_a_window_of_the_environment_is_the_window() -> None:
    given = {"HOLDFAST_CIRCUIT_FAILURE_THRESHOLD": "5/20", "HOLDFAST_CIRCUIT_WINDOW": "8"}
    assert ResilienceConfig.from_env(given).window == 8
    assert ResilienceConfig.from_env({**given, "HOLDFAST_CIRCUIT_WINDOW": "none"}).window == 10


@pytest.mark.parametrize("text", ["0", "0/10", "5/0", "11/10", "1.1", "5/", "/5", "-1/2", "50%", "1/20000", "0.00001"])
def test_a_bad_threshold_names_its_variable(text: str) -> None:
    with pytest.raises(ConfigurationError, match="HOLDFAST_CIRCUIT_FAILURE_THRESHOLD"):
        ResilienceConfig.from_env({"HOLDFAST_CIRCUIT_FAILURE_THRESHOLD": text})


def test_the_environment_changes_listed_types_and_adds_others() -> None:
    config = ResilienceConfig.from_env(
        {
            "STABILIZE_BULKHEAD_HTTP_MAX_CONCURRENT": "20",
            "HOLDFAST_BULKHEAD_HTTP_MAX_QUEUE_SIZE": "0",
            "HOLDFAST_BULKHEAD_SEND_MAIL_TIMEOUT_SECONDS": "1.5",
            "HOLDFAST_BULKHEAD_DEFAULT_MAX_CONCURRENT": "2",
        }
    )
    assert config.get_bulkhead("http") == BulkheadConfig(20, 0)
    assert config.get_bulkhead("shell") == BulkheadConfig(5)
    assert config.get_bulkhead("send-mail") == BulkheadConfig(5, 20, 1.5)
    assert config.get_bulkhead("unlisted") == BulkheadConfig(2)


@pytest.mark.parametrize("text", ["", "0", "many", "1.5"])
@pytest.mark.parametrize("task_type", ["HTTP", "NEVER_HEARD_OF"])
def test_a_bad_limit_names_its_variable(task_type: str, text: str) -> None:
    variable = f"STABILIZE_BULKHEAD_{task_type}_MAX_CONCURRENT"
    with pytest.raises(ConfigurationError, match=rf"{variable} must be a whole number from 1 to 10000, got '{text}'"):
        ResilienceConfig.from_env({variable: text})


@pytest.mark.parametrize("rest", ["HTTP_MAX_CONCURENT", "MAX_CONCURRENT", "HTTP", "http_MAX_CONCURRENT", ""])
def test_a_limit_that_would_never_be_read_is_refused(rest: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"HOLDFAST_BULKHEAD_{rest} sets nothing.*MAX_QUEUE_SIZE"):
        ResilienceConfig.from_env({f"HOLDFAST_BULKHEAD_{rest}": "5"})


def test_the_database_has_its_old_name_too() -> None:
    url = "postgresql://host/db"
    assert ResilienceConfig.from_env({"MG_DATABASE_URL": url}).database_url == url
    both = {"MG_DATABASE_URL": "sqlite:///x", "STABILIZE_DATABASE_URL": url}
    assert ResilienceConfig.from_env(both).database_url == url


def test_a_secret_is_shown_nowhere() -> None:
    config = ResilienceConfig(database_url="postgresql://u:hush@host/db?password=hush")
    told = [repr(config), json.dumps(config_values(config)), str(config_drift(config, ResilienceConfig()))]
    for wrong in ("hush", "u:hush@host"):
        with pytest.raises(PolicyError) as refused:
            ResilienceConfig(database_url=wrong)
        with pytest.raises(ConfigurationError) as named:
            ResilienceConfig.from_env({"HOLDFAST_DATABASE_URL": wrong})
        told += [str(refused.value), str(named.value)]
    assert not [text for text in told if "hush" in text]


URL = "postgresql+psycopg://app:hush@Db.example:5432/orders?sslmode=require"


@pytest.mark.parametrize(
    "same",
    [
        "postgresql+psycopg://app:other@db.example:5432/orders",
        "postgresql+psycopg://db.example:5432/orders?password=hush",
        "postgresql+psycopg://root@db.example:5432/orders?options=a@b",
        "postgresql+psycopg://a:p/w?d#@db.example:5432/orders",
        "PostgreSQL+psycopg://a:p@w@db.example:5432/orders",
    ],
)
def test_who_asks_the_database_is_not_in_the_fingerprint(same: str) -> None:
    config, other = ResilienceConfig(database_url=URL), ResilienceConfig(database_url=same)
    assert config.config_fingerprint() == other.config_fingerprint()
    assert config_values(other)["database_url"] == "postgresql+psycopg://db.example:5432/orders"


@pytest.mark.parametrize(
    "other",
    [
        "postgresql://app:hush@db.example:5432/orders",
        "postgresql+psycopg://app:hush@db2.example:5432/orders",
        "postgresql+psycopg://app:hush@db.example:5433/orders",
        "postgresql+psycopg://app:hush@db.example:5432/other",
        None,
    ],
)
def test_which_database_it_is_is_in_the_fingerprint(other: str | None) -> None:
    config = ResilienceConfig(database_url=URL)
    assert config.config_fingerprint() != ResilienceConfig(database_url=other).config_fingerprint()


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("sqlite:///orders.db", "sqlite:///orders.db"),
        ("sqlite:////srv/a@b/orders.db?mode=ro", "sqlite:////srv/a@b/orders.db"),
        ("sqlite://", "sqlite://"),
        ("postgresql://u:p@/db?host=/run", "postgresql:///db"),
        ("postgresql://u:p@[::1]:5432/db", "postgresql://[::1]:5432/db"),
        ("postgresql://u:p@a:1,b:2/db", "postgresql://a:1,b:2/db"),
        ("postgresql://u:p@ss?w@rd@host/db", "postgresql://***"),
        ("postgresql://user:p w/hush", "postgresql://***"),
    ],
)
def test_a_place_is_driver_host_port_and_database(url: str, shown: str) -> None:
    assert place(url) == shown


@given(st.text(alphabet="ab@:/?#&=%.[]1", max_size=12), st.sampled_from(["", "?x=1", "?a=b@c"]))
def test_no_odd_password_gets_into_a_place(odd: str, query: str) -> None:
    secret = f"hush{odd}HUSH"
    assert "hush" not in place(f"postgresql://user:{secret}@host:1/db{query}").lower()


@pytest.mark.parametrize("kind", ALL)
def test_every_field_changes_the_fingerprint(kind: Any) -> None:
    others: dict[str, Any] = {
        "bulkheads": (("http", BulkheadConfig(11)),),
        "circuit_failure_threshold": Fraction(1, 3),
        "database_url": URL,
        "circuit_scope": "task_type",
        "isolation_mode": "process",
        "drift_policy": "refuse",
        "recovery_enabled": False,
        "merge_strict": True,
        "jitter": 1.0,
        "concurrency_jitter": 1.0,
        "error_handling_jitter": 1.0,
        "lease_heartbeat_seconds": 1.0,
    }
    prints = {kind().config_fingerprint()}
    for item in fields(kind):
        value = others.get(item.name)
        if value is None:
            value = 12345 if "max_delay" in item.name else 99
        prints.add(replace(kind(), **{item.name: value}).config_fingerprint())
    assert len(prints) == len(fields(kind)) + 1
    assert all(len(text) == 16 and int(text, 16) >= 0 for text in prints)


@dataclass(frozen=True, slots=True)
class Grown(HandlerConfig):
    """A later version with two more fields."""

    colour: str = "green"
    api_token: str = "hush"


def test_a_new_field_is_covered_by_itself_and_a_secret_one_is_not() -> None:
    assert Grown(colour="red").config_fingerprint() != Grown().config_fingerprint()
    assert Grown(api_token="other").config_fingerprint() == Grown().config_fingerprint()
    assert "hush" not in json.dumps(config_values(Grown()))


def test_equal_values_have_equal_fingerprints() -> None:
    assert HandlerConfig(handler_retry_delay_seconds=15).config_fingerprint() == HandlerConfig().config_fingerprint()
    assert BackoffConfig(jitter=-0.0).config_fingerprint() == BackoffConfig(jitter=0).config_fingerprint()
    turned = ResilienceConfig(bulkheads=ResilienceConfig().bulkheads[::-1], circuit_failure_threshold=0.5)  # type: ignore[arg-type]
    assert turned.config_fingerprint() == ResilienceConfig().config_fingerprint()
    assert ResilienceConfig.from_env({"HOLDFAST_CIRCUIT_FAILURE_THRESHOLD": "5/10"}) == ResilienceConfig()


def test_a_type_whose_name_sounds_secret_is_covered_too() -> None:
    prints = {ResilienceConfig(bulkheads=(("token", BulkheadConfig(n)),)).config_fingerprint() for n in (1, 2)}
    assert len(prints) == 2


def of_payments(workflow_id: str, task_type: str) -> str:
    return "payments"


def test_a_function_as_scope_counts_by_its_name() -> None:
    first = ResilienceConfig(circuit_scope=of_payments)
    assert config_values(first)["circuit_scope"] == f"{__name__}:of_payments"
    assert first.config_fingerprint() != ResilienceConfig().config_fingerprint()


def test_a_fingerprint_is_the_same_in_every_process() -> None:
    program = (
        "from holdfast.workflows.config import *\n"
        f"configs = ResilienceConfig(database_url={URL!r}), HandlerConfig(), EngineConfig()\n"
        "print(*[config.config_fingerprint() for config in configs], combined_fingerprint(*configs))"
    )
    environ = {**os.environ, "PYTHONHASHSEED": "7", "PYTHONPATH": os.pathsep.join(sys.path)}
    told = subprocess.run([sys.executable, "-c", program], env=environ, capture_output=True, text=True, check=True)
    configs = ResilienceConfig(database_url=URL), HandlerConfig(), EngineConfig()
    own = [config.config_fingerprint() for config in configs]
    assert told.stdout.split() == [*own, combined_fingerprint(*configs)]


def test_a_combined_fingerprint_heeds_each_but_not_their_order() -> None:
    resilience, handler = ResilienceConfig(), HandlerConfig()
    both = combined_fingerprint(resilience, handler)
    assert both == combined_fingerprint(handler, resilience)
    assert both not in (combined_fingerprint(resilience, HandlerConfig(max_workers=9)), combined_fingerprint(handler))
    assert len(both) == 16


def test_drift_names_what_has_changed_with_old_and_new() -> None:
    before = json.loads(json.dumps(config_values(ResilienceConfig(), HandlerConfig())))
    now = ResilienceConfig.from_env(
        {"HOLDFAST_BULKHEAD_HTTP_MAX_CONCURRENT": "20", "HOLDFAST_BULKHEAD_MAIL_MAX_CONCURRENT": "1"}
    )
    now = replace(now, circuit_failure_threshold=Fraction(3, 10))
    drift = config_drift(before, now, HandlerConfig(max_workers=20))
    assert drift == {
        "bulkheads.http.max_concurrent": (10, 20),
        "bulkheads.mail.max_concurrent": (None, 1),
        "bulkheads.mail.max_queue_size": (None, 20),
        "bulkheads.mail.timeout_seconds": (None, 14400),
        "circuit_failure_threshold": ("1/2", "3/10"),
        "max_workers": (10, 20),
    }
    assert drift["max_workers"].old == 10
    assert config_drift(before, ResilienceConfig(), HandlerConfig()) == {}


def test_a_type_that_is_no_longer_listed_is_drift() -> None:
    now = ResilienceConfig(bulkheads=ResilienceConfig().bulkheads[:4])
    assert config_drift(ResilienceConfig(), now)["bulkheads.ssh.max_concurrent"] == (5, None)


def test_only_what_is_given_is_compared() -> None:
    before = config_values(ResilienceConfig(circuit_cache_size=5), HandlerConfig())
    assert config_drift(before, HandlerConfig()) == {}


def test_a_field_that_a_later_version_has_is_drift_unless_it_is_none() -> None:
    before = config_values(ResilienceConfig())
    del before["circuit_window"], before["circuit_cache_size"]
    assert config_drift(before, ResilienceConfig()) == {"circuit_cache_size": (None, 1000)}


@dataclass
class Workflow:
    config_version: str | None
    config_values: dict[str, Any] | None = None


def test_drift_of_a_workflow_is_told_by_its_stored_values() -> None:
    workflow = Workflow("release 7", config_values(HandlerConfig()))
    assert config_drift(workflow, HandlerConfig(max_workers=3)) == {"max_workers": (10, 3)}


def test_without_stored_values_the_fingerprint_tells() -> None:
    configs, later = (ResilienceConfig(), HandlerConfig()), (ResilienceConfig(), HandlerConfig(max_workers=3))
    for version in (combined_fingerprint(*configs), HandlerConfig().config_fingerprint()):
        assert config_drift(Workflow(version), *configs) == {}
        assert config_drift(Workflow(version), *later) == {"config_version": (version, combined_fingerprint(*later))}


@pytest.mark.parametrize("version", [None, "release 7", ""])
def test_a_version_of_the_users_own_is_no_drift(version: str | None) -> None:
    assert config_drift(Workflow(version), HandlerConfig()) == {}


def test_two_configurations_of_a_kind_cannot_be_stored_together() -> None:
    with pytest.raises(ConfigurationError, match="two configurations have a field"):
        config_values(HandlerConfig(), HandlerConfig())


def test_every_setting_says_what_is_wanted_and_what_to_do() -> None:
    for kind in ALL:
        for name, setting in settings(kind):
            assert setting.wanted, name
            assert setting.fix, name
