"""The root of the commands: loads a group when it is asked for, and turns errors into lines and exit codes."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final

import click

from holdfast import __version__
from holdfast.cli.exits import MEANINGS, ExitCode, code_of, line_of
from holdfast.cli.session import Session, store_options

# The help texts stand here so that `holdfast --help` loads none of the groups.
GROUPS: Final[Mapping[str, str]] = {
    "letters": "Dead letters: find, show, replay, resolve, purge.",
    "outbox": "Calls that must happen: find, show, requeue, cancel, prune.",
    "saga": "Sagas: see them, cancel them, help those that are stuck.",
    "workflow": "Workflows: start, see, draw and watch them, send signals, cancel.",
    "audit": "The audit trail: verify, show, take checkpoints.",
    "breakers": "Shared circuit breakers: see and control them.",
    "guards": "Guards: what they are made of, why they refuse.",
    "pools": "Endpoint pools: how members do, taking one out of use.",
    "retry": "Retry policies of rotators, and what attempts came to.",
    "workers": "Workers of workflows: who is alive, what they have in hand.",
    "db": "The schema of a SQL store.",
    "doctor": "Say what is wrong with policies and store, and what to do.",
    "config": "Settings: what they are, and where they come from.",
    "access": "Who may use the API and the console: users and tokens.",
    "worker": "Drain, retry, call and tidy up until it is stopped.",
    "serve": "Serve the REST API and the web console until it is stopped.",
    "server": "A server: how it is, whom it takes you for, its events.",
    "top": "A live view of everything, in the terminal.",
    "demo": "See it all at work: a shop with outages, and the console.",
}
_NO_ARGUMENTS: Final = getattr(click.exceptions, "NoArgsIsHelpError", ())  # older releases exit instead
EXIT_CODES: Final = "\b\nExit codes:\n" + "\n".join(f"  {code.value}  {text}" for code, text in MEANINGS.items())


class Root(click.Group):
    """Each name in GROUPS is the command of that name in the module of that name."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(GROUPS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in GROUPS:
            return None
        command: click.Command = getattr(import_module(f"holdfast.cli.{cmd_name}"), cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(GROUPS.items()))

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run, and exit with the code that the end means."""
        session = extra.setdefault("obj", Session())
        try:
            answer = super().main(*args, **{**extra, "standalone_mode": False})
            sys.stdout.flush()
        except BrokenPipeError:  # `| head` has seen enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the flush at exit would complain
            sys.exit(ExitCode.FAILED)
        except (Exception, KeyboardInterrupt) as error:
            if session.debug:
                traceback.print_exception(error)
            _tell(error)
            sys.exit(code_of(error))
        sys.exit(answer if isinstance(answer, int) else ExitCode.OK)


def _tell(error: BaseException) -> None:
    if isinstance(error, click.ClickException) and isinstance(error, _NO_ARGUMENTS):
        error.show()
        return
    click.echo(f"holdfast: {line_of(error)}", err=True)
    if isinstance(error, click.UsageError) and error.ctx is not None:
        click.echo(f"try: {error.ctx.command_path} --help", err=True)


@click.command(cls=Root, name="holdfast", epilog=EXIT_CODES, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="holdfast")
@store_options
def root() -> None:
    """See and steer what Holdfast keeps: dead letters, the outbox, sagas, workflows, the audit trail, shared circuit
    breakers and the store itself.

    Commands act on the shared store that --url (or HOLDFAST_URL) names, or that the program's own Holdfast uses:
    --app module:attribute (or HOLDFAST_APP).
    """
