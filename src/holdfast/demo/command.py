"""`holdfast demo`: the command, which `python -m holdfast.demo` is too."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import click

from holdfast.errors import MissingExtra

NEEDED: Final = ("sqlalchemy", "alembic", "fastapi", "uvicorn", "rich")


@click.command()
@click.option("--seed", type=int, default=7, show_default=True, help="Chance: orders, amounts, later outages.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8400, show_default=True, help="Of the console, or the next free."
)
@click.option("--keep", type=click.Path(path_type=Path), metavar="FILE", help="Keep the SQLite file there.")
@click.option(
    "--picture", type=click.Path(path_type=Path), metavar="FILE", help="Draw the first chapter as an SVG file."
)
@click.option("--exit", "ends", is_flag=True, help="End after the story, also in a terminal.")
@click.option("--quick", is_flag=True, help="Leave out the pauses in which one can look.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON and nothing else, and end.")
def demo(seed: int, port: int, keep: Path | None, picture: Path | None, ends: bool, quick: bool, as_json: bool) -> int:
    """A simulated shop with a bank, a warehouse and a post office that fail, on a SQLite file, with the console.

    A breaker opens, dead letters pile up and drain, an outbox catches up, a saga is undone, and a workflow survives
    the death of its worker: told in the terminal, and to be seen in the browser. It stays open until Ctrl-C; without a
    terminal, or with --exit, it ends after the story: with status 0 if all of that has happened, otherwise with 1.
    """
    for file, option in ((keep, "--keep"), (picture, "--picture")):
        if file is not None and not file.absolute().parent.is_dir():
            raise click.ClickException(f"there is no folder for {file}; choose another {option}")
    if keep is not None and keep.exists():
        raise click.ClickException(f"{keep} is there already; choose another --keep")
    if missing := [name for name in NEEDED if find_spec(name) is None]:
        raise MissingExtra(f"the demo needs {', '.join(missing)}; run: pip install 'holdfast[demo]'")
    from holdfast.demo.ending import Ending

    with Ending() as ending:
        from holdfast.demo.play import Options, play

        stays = not (ends or as_json) and sys.stdout.isatty()
        return play(Options(seed, port, keep, picture, stays, quick, as_json), ending)
