"""`holdfast doctor` and `holdfast config`."""

from __future__ import annotations

from tests.cli.shop import APP


def test_the_doctor_says_what_is_wrong_why_and_what_to_do(run):
    told = run("doctor", "--app", APP, "--ignore", "unkeyed-trail", env={"HOLDFAST_URL": None}).stdout
    assert "HF101 warning: guard 'payments'" in told
    assert "why  A call that hangs" in told
    assert "do   add Timeout(total=...)" in told
    assert told.rstrip().endswith("1 warning")


def test_warnings_fail_only_when_asked_to(run):
    run("doctor", "--app", APP, env={"HOLDFAST_URL": None})
    run("doctor", "--app", APP, "--strict", env={"HOLDFAST_URL": None}, code=1)


def test_a_healthy_store_is_said_to_be(run, hold):
    assert run("doctor", "--ignore", "HF405").stdout == "healthy\n"


def test_the_doctor_answers_in_json(answer, hold):
    told = answer("doctor")
    assert told["healthy"] is True
    assert [one["rule"] for one in told["findings"]] == ["HF405"]


def test_the_rules_are_listed(run, answer):
    assert run("doctor", "--rules").stdout.splitlines()[1].startswith("HF101")
    assert answer("doctor", "--rules")["items"][0]["id"] == "HF101"


def test_a_rule_that_does_not_exist_is_wrong_usage(run, hold):
    assert "there is no rule 'HF9'" in run("doctor", "--ignore", "HF9", code=2).output


def test_the_settings_are_shown_with_their_origin_and_without_secrets(run, answer, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "holdfast.toml").write_text('quorum = 2\naudit_key = "k3y"\n')
    told = run("config", "show", env={"HOLDFAST_URL": "postgresql://ann:hunter2@db/shop"}).stdout
    assert "quorum     2" in told
    assert "environment" in told
    assert "hunter2" not in told
    assert "k3y" not in told
    shown = {one["name"]: one for one in answer("config", "show")["settings"]}
    assert shown["quorum"] == {"name": "quorum", "value": 2, "origin": "file"}
    assert "capacity" in run("config", "show", "--all").stdout


def test_a_setting_that_cannot_be_is_one_line(run):
    told = run("config", "show", env={"HOLDFAST_QUORUM": "many"}, code=2).output
    assert (
        told == "holdfast: quorum: Input should be a valid integer, unable to parse string as an integer, got 'many'\n"
    )


def test_the_store_of_the_file_is_used_when_nothing_else_names_one(run, hold, url, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "holdfast.toml").write_text(f'url = "{url}"\n')
    hold.letters.create("mail", "boom")
    assert "mail" in run("letters", "list", env={"HOLDFAST_URL": None}).stdout
