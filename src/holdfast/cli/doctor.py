"""`holdfast doctor`: what is wrong with policies and store, and what to do."""

from __future__ import annotations

import click

from holdfast.cli.exits import ExitCode, WrongUsage
from holdfast.cli.filters import json_option
from holdfast.cli.output import Column, document, heading, note, say, table
from holdfast.cli.session import Session, pass_session, store_options
from holdfast.doctor.examine import Diagnosis, examine
from holdfast.doctor.rules import RULES, Finding, Rule, Severity
from holdfast.errors import ConfigurationError


@click.command()
@click.option("--ignore", multiple=True, metavar="RULE", help="Leave a rule out, by id or name; can be given again.")
@click.option("--policies", is_flag=True, help="Look at the program's policies only, not at the store.")
@click.option("--strict", is_flag=True, help="Warnings count as errors.")
@click.option("--rules", is_flag=True, help="List the rules instead.")
@json_option
@store_options
@pass_session
def doctor(session: Session, ignore: tuple[str, ...], policies: bool, strict: bool, rules: bool, as_json: bool) -> int:
    """Say what is wrong, and what to do; exit code 1 if anything is.

    With --app the program's guards, tasks and operations are looked at as well: retries at two layers, limits that
    outlive their callers, dead letters that nobody can replay. A server looks at those of its own. Nothing is changed.
    """
    if rules:
        _list_rules(as_json)
        return ExitCode.OK
    try:
        diagnosis = _examined(session, ignore, policies)
    except ConfigurationError as error:
        raise WrongUsage(str(error)) from error
    bad = {Severity.ERROR, Severity.WARNING} if strict else {Severity.ERROR}
    failed = bool(diagnosis.unseen) or any(finding.rule.severity in bad for finding in diagnosis.findings)
    if as_json:
        document(diagnosis.as_dict())
        return ExitCode.FAILED if failed else ExitCode.OK
    for finding in diagnosis.findings:
        heading(f"{finding.rule.id} {finding.rule.severity}: {finding.where}")
        for line in (finding.what, f"why  {finding.rule.why}", f"do   {finding.fix}"):
            say(f"  {line}")
    for part in diagnosis.unseen:
        note(f"not looked at: {part}")
    if diagnosis.findings:
        heading("")
    say(_summary(diagnosis))
    return ExitCode.FAILED if failed else ExitCode.OK


def _examined(session: Session, ignore: tuple[str, ...], policies: bool) -> Diagnosis:
    """What was found here, or by a server, which looks at the policies of its own program."""
    remote = session.remote
    if remote is None:
        return examine(session.hold(), ignore=ignore, policies_only=policies)
    if policies:
        raise WrongUsage(f"--policies needs the program itself, --app: {remote.url} is a server")
    found = remote.get("/doctor", ignore=ignore or None, fresh=True)
    return Diagnosis(tuple(map(_finding, found["findings"])), tuple(found["unseen"]))


def _finding(told: dict[str, str]) -> Finding:
    rule = Rule(told["rule"], told["name"], Severity(told["severity"]), told["why"])
    return Finding(rule, told["where"], told["what"], told["fix"])


def _summary(diagnosis: Diagnosis) -> str:
    numbers = {severity: len(diagnosis.of(severity)) for severity in Severity}
    return ", ".join(f"{number} {name}{'s' * (number != 1)}" for name, number in numbers.items() if number) or "healthy"


def _list_rules(as_json: bool) -> None:
    if as_json:
        document({"items": [{name: getattr(one, name) for name in ("id", "name", "severity", "why")} for one in RULES]})
        return
    columns = (Column("RULE"), Column("NAME"), Column("SEVERITY"), Column("WHY", gives=True))
    table(columns, [(one.id, one.name, one.severity, one.why) for one in RULES])
