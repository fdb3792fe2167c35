"""`holdfast letters`: the commands about dead letters."""

from __future__ import annotations

import click

from holdfast.cli.bulk import bulk
from holdfast.cli.deciding import delete, reopen, review
from holdfast.cli.domains import domains, errors, retention
from holdfast.cli.keeping import archive, compressed, purge
from holdfast.cli.reading import attempts, facets, list_letters, show, stats
from holdfast.cli.replays import force_redrive, pause, reject, resolve, resume, retry
from holdfast.cli.revealing import reveal_letter
from holdfast.cli.session import InOrder, store_options


@click.group(cls=InOrder)
@store_options
def letters() -> None:
    """Dead letters: find, show, replay, resolve, purge."""


for command in (
    list_letters, show, reveal_letter, attempts, facets, errors, domains, stats, retention,
    retry, force_redrive, resolve, reject, review, reopen, delete, pause, resume,
    bulk, archive, purge, compressed,
):  # fmt: skip
    letters.add_command(command)
