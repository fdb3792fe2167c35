"""Values of a context in commands: whatever they hold, a shell does not run them."""

from __future__ import annotations

import os
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import ConfigurationError
from holdfast.workflows.tasks.placeholders import arguments, filled, script, text_of

EVIL = """a'b"c$(echo run)`echo run`;echo run #\\ *\n{x}"""


def said(text: str, **context: object) -> str:
    """What a shell command writes."""
    made = script(text, context)
    done = subprocess.run(
        ["sh", "-c", made.text], env={**os.environ, **made.variables}, capture_output=True, check=True
    )
    return done.stdout.decode()


@pytest.mark.parametrize(
    "template",
    [
        "{x}",
        '"{x}"',
        '"it\'s" {x}',
        '"it\'s {x}"',
        '"$(printf %s {x})"',
        '"$(printf %s "{x}")"',
        '"a $(printf %s "b $(printf %s {x})" {x}) {x}"',
        '"$( (printf %s {x}) )" {x}',
        "{x} # don't",
        "'a' {x}",
        '"a"{x}"b"',
        "\\' {x}",
    ],
)
@pytest.mark.parametrize("value", [EVIL, "", " two  words ", "-n", "$HOME", "*"])
def test_a_value_is_data_wherever_it_stands(template: str, value: str) -> None:
    around = template.replace("# don't", "")
    expected = said("printf '<%s>' " + around, x="QQQ").replace("QQQ", value)
    assert said("printf '<%s>' " + template, x=value) == expected


def test_a_bracket_that_ends_nothing_is_passed_over() -> None:
    assert said("case a in a) printf '<%s>' {x} \"{x}\";; esac", x="*") == "<*><*>"


@pytest.mark.parametrize("text", ["echo $((1 + {x}))", 'echo "$((1 + {x}))"', "echo $(( $(echo {x}) + 1 ))"])
def test_a_value_in_arithmetic_is_refused_for_some_shells_run_what_it_holds(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"\{x\} stands in arithmetic"):
        script(text, {"x": "a[$(touch ran)]"})
    assert script("echo $((1 + 2)) {x}", {"x": 3}).text == 'echo $((1 + 2)) "${HOLDFAST_VALUE_1}"'


def test_between_backticks_a_value_is_one_word_or_is_refused() -> None:
    assert said("printf '<%s>' `printf '[%s]' {x}` {x}", x="*") == "<[*]><*>"
    with pytest.raises(ConfigurationError, match=r"\{x\} stands between backticks in quotes; write \$\("):
        script('echo "`echo {x}`"', {"x": "*"})
    assert script('echo "`date` {x}"', {"x": 3}).text == 'echo "`date` ${HOLDFAST_VALUE_1}"'


@settings(deadline=None, max_examples=25)
@given(st.text("ab$`'\"\\;&|(){}<> \n*", max_size=20), st.text("{x} '\"\\#\n;", max_size=20))
def test_no_value_is_ever_run(value: str, around: str) -> None:
    made = script(around + " {x} " + around, {"x": "touch " + value})
    assert "touch" not in made.text


def test_single_quotes_and_shell_syntax_are_left_alone() -> None:
    text = """awk '{print}' <<< "${HOME}" && echo {a,b} { x; } '{x}' # {x}"""
    assert script(text, {}) == (text, {}, ())
    assert script("echo {{x}} \\{x}", {}).text == "echo {x} \\{x}"


def test_a_name_leads_into_the_context_and_is_one_variable() -> None:
    made = script("send {order.id} {order.id} {n}", {"order": {"id": 7}, "n": [1, None]})
    assert made.text == 'send "${HOLDFAST_VALUE_1}" "${HOLDFAST_VALUE_1}" "${HOLDFAST_VALUE_2}"'
    assert made.variables == {"HOLDFAST_VALUE_1": "7", "HOLDFAST_VALUE_2": "[1, null]"}
    assert made.names == ("order.id", "n")


@pytest.mark.parametrize("text", ["echo {x}", "echo {y.z}", 'echo "{x}"'])
def test_a_placeholder_without_a_value_is_refused_by_name(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"placeholder \{[xy.z]+\} has no value .* write \{\{"):
        script(text, {"y": 3})


def test_a_value_with_a_zero_character_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"\{x\} holds U\+0000"):
        text_of("x", {"x": "a\0b"})


def test_in_a_list_each_item_stays_one_argument() -> None:
    assert arguments(["send", "--to={x}", "{{x}}", "{n}"], {"x": EVIL, "n": True}) == [
        "send",
        "--to=" + EVIL,
        "{x}",
        "true",
    ]


@pytest.mark.parametrize("command", [["sh", "-c", "echo {x}"], ["/bin/bash", "-ec", "echo {x}"]])
def test_a_value_is_not_put_into_a_text_that_a_listed_shell_runs(command: list[str]) -> None:
    with pytest.raises(ConfigurationError, match="give the command as one text instead"):
        arguments(command, {"x": "1"})
    assert arguments(["sh", "-c", 'echo "$1"', "sh", "{x}"], {"x": EVIL})[-1] == EVIL


def test_a_filled_text_may_encode_its_values() -> None:
    assert filled("/{a}/{b}", {"a": "x", "b": "y"}, str.upper) == "/X/Y"
