"""Settings: holdfast.toml, then the environment, then code."""

from __future__ import annotations

import os

import pytest

from holdfast import Breaker, ConfigurationError, Holdfast, PolicyError, Retry, Settings, Timeout, count, slow_ratio
from holdfast.config import DEFAULT, IN_ENVIRONMENT, IN_FILE

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
