"""`python -m benchmarks`: measure Holdfast, its peers and the floor, and write docs/benchmarks.md.

The store, the outbox, workflows and the server have pages of their own, docs/benchmarks-store.md and so on;
`--only guard`, `--only store`, `--only outbox`, `--only workflows` and `--only server` run one of the five.
"""

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from benchmarks import report
from benchmarks.outbox import report as outbox_report
from benchmarks.outbox.run import OutboxWish
from benchmarks.outbox.run import run as run_outbox
from benchmarks.run import HERE, Case, Results, Worker, collect, peers_python
from benchmarks.server import report as server_report
from benchmarks.server.run import ServerWish
from benchmarks.server.run import run as run_server
from benchmarks.store import report as store_report
from benchmarks.store.run import StoreWish
from benchmarks.store.run import run as run_store
from benchmarks.workflows import report as workflows_report
from benchmarks.workflows.run import WorkflowsWish
from benchmarks.workflows.run import run as run_workflows

ROOT = HERE.parent
PEERS = ROOT / ".venv-peers"
PARTS = ("guard", "store", "outbox", "workflows", "server")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one short round; leaves the pages alone")
    parser.add_argument("--only", choices=PARTS, help="the guards, the store, the outbox, workflows, or the server")
    parser.add_argument(
        "--rows", metavar="REGEX", default="", help="only rows whose `key colour` or `key store` matches"
    )
    parser.add_argument("--rounds", type=int, default=5, help="rounds over everything (default 5)")
    parser.add_argument("--json", metavar="FILE", type=Path, help="also write every figure as JSON")
    parser.add_argument("--page", metavar="FILE", type=Path, help="the page, by default docs/benchmarks.md")
    parser.add_argument("--store-page", metavar="FILE", type=Path, help="by default docs/benchmarks-store.md")
    parser.add_argument("--outbox-page", metavar="FILE", type=Path, help="by default docs/benchmarks-outbox.md")
    parser.add_argument("--workflows-page", metavar="FILE", type=Path, help="by default docs/benchmarks-workflows.md")
    parser.add_argument("--server-page", metavar="FILE", type=Path, help="by default docs/benchmarks-server.md")
    parser.add_argument("--rows-kept", type=int, help="rows in each served table (default 1,000,000; quick 20,000)")
    parser.add_argument("--bulk", type=int, help="letters of the bulk operation (default 100,000; quick 500)")
    parser.add_argument("--rate", type=int, help="reads a second (default 2,000; quick 500)")
    parser.add_argument("--kept", type=int, help="workflows that are done at most (default 100,000; quick 600)")
    parser.add_argument("--largest", type=int, help="entries in the largest outbox (default 1,000,000; quick 5,000)")
    parser.add_argument("--letters", type=int, help="letters in each store (default 100,000; quick 1,000)")
    parser.add_argument("--done", type=int, help="done letters more in grown stores (default 1,000,000; quick 5,000)")
    parser.add_argument("--redis-done", type=int, help="the same in Redis (default a fifth of --done)")
    parser.add_argument("--peers", metavar="DIR", type=Path, default=PEERS, help="the peers' environment")
    parser.add_argument("--no-peers", action="store_true", help="only bare, floor and ours")
    parser.add_argument("--strict", action="store_true", help="exit 1 when a target is missed")
    return parser.parse_args()


@contextmanager
def progress_line() -> Iterator[Callable[[int, int, Case], None]]:
    """A live line on stderr, by rich where it is installed."""
    try:
        from rich.console import Console
        from rich.progress import Progress
    except ImportError:
        yield lambda done, total, case: rewrite(f"{done}/{total} {' '.join(case)}")
        rewrite("")
        return
    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("")
        yield lambda done, total, case: bar.update(
            task,
            completed=done,
            total=total,
            description=" ".join(case),
        )


def rewrite(text: str) -> None:
    print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def show(results: Results) -> bool:
    """Print the tables; True when every target is met."""
    measured = report.lines(results)
    judged = report.bar(measured)
    tables = [(report.SUMMARY, report.summary(measured)), report.all_peers(measured), (report.BAR, judged)]
    for head, table in tables:
        print(report.text_table(head, table), end="\n\n")
    for complaint in report.complaints(results):
        print("!", complaint)
    met = sum(row[-1] == "met" for row in judged)
    print(f"{met} of {len(judged)} targets met")
    return met == len(judged)


def main() -> int:
    options = arguments()
    parts = {
        "guard": guard_part, "store": store_part, "outbox": outbox_part, "workflows": workflows_part,
        "server": server_part,
    }  # fmt: skip
    figures, met = {}, True
    for name in [options.only] if options.only else PARTS:
        figures[name], all_met = parts[name](options)
        met = met and all_met
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n")
    return int(options.strict and not met)


def guard_part(options: argparse.Namespace) -> tuple[dict[str, Any], bool]:
    """Every figure, and whether every target is met."""
    rounds, seconds = (1, 0.01) if options.quick else (options.rounds, 0.015)
    with ExitStack() as stack:
        workers = [stack.enter_context(Worker("ours", sys.executable))]
        if not options.no_peers:
            workers.append(stack.enter_context(Worker("peers", peers_python(options.peers))))
        progress = stack.enter_context(progress_line())
        results = collect(workers, re.compile(options.rows), rounds, seconds, progress)
    met = show(results)
    if options.page or is_whole(options):
        settings = f"{rounds} rounds, samples of {seconds * 1e3:.0f} ms"
        write(options.page or ROOT / "docs" / "benchmarks.md", report.page(results, settings))
    return report.raw(results), met


def store_part(options: argparse.Namespace) -> tuple[dict[str, Any], bool]:
    wish = store_wish(options)
    python = None
    if not options.no_peers:
        # Not among the others: with redis-py installed, two of them import it, and their start-up would be another.
        python = peers_python(options.peers / "store", HERE / "store" / "peers.txt")
    with progress_line() as progress:
        results = run_store(wish, python, progress)
    trouble = store_report.complaints(results)
    met = show_all(store_report.tables(store_report.lines(results)), trouble, results.took)
    if options.store_page or is_whole(options):
        write(options.store_page or ROOT / "docs" / "benchmarks-store.md", store_report.page(results, wish))
    return store_report.raw(results, trouble), met


def outbox_part(options: argparse.Namespace) -> tuple[dict[str, Any], bool]:
    wish = outbox_wish(options)
    python = None
    if not options.no_peers:
        python = peers_python(options.peers / "outbox", HERE / "outbox" / "peers.txt")
    with progress_line() as progress:
        results = run_outbox(wish, python, progress)
    trouble = outbox_report.complaints(results)
    met = show_all(outbox_report.tables(outbox_report.lines(results)), trouble, results.took)
    if options.outbox_page or is_whole(options):
        write(options.outbox_page or ROOT / "docs" / "benchmarks-outbox.md", outbox_report.page(results, wish))
    return store_report.raw(results, trouble), met


def workflows_part(options: argparse.Namespace) -> tuple[dict[str, Any], bool]:
    wish = workflows_wish(options)
    python = None
    if not options.no_peers:
        python = peers_python(options.peers / "workflows", HERE / "workflows" / "peers.txt")
    with progress_line() as progress:
        results = run_workflows(wish, python, progress)
    trouble = workflows_report.complaints(results)
    met = show_all(workflows_report.tables(workflows_report.lines(results)), trouble, results.took)
    if options.workflows_page or is_whole(options):
        write(options.workflows_page or ROOT / "docs" / "benchmarks-workflows.md", workflows_report.page(results, wish))
    return store_report.raw(results, trouble), met


def server_part(options: argparse.Namespace) -> tuple[dict[str, Any], bool]:
    """It has no peers: the bar is in milliseconds."""
    wish = server_wish(options)
    with progress_line() as progress:
        results = run_server(wish, progress)
    met = show_all(server_report.tables(results), results.complaints, results.took)
    if options.server_page or not (options.quick or options.rows):
        write(options.server_page or ROOT / "docs" / "benchmarks-server.md", server_report.page(results, wish))
    return server_report.raw(results), met


def show_all(tables: dict[str, store_report.Drawn], trouble: list[str], took: dict[str, float]) -> bool:
    """Print the tables of a run on databases; True when every target is met."""
    for head, table in tables.values():
        if table:
            print(report.text_table(head, table), end="\n\n")
    for complaint in trouble:
        print("!", complaint)
    judged = tables["bar"][1]
    met = sum(row[-1] == "met" for row in judged)
    times = ", ".join(f"{seconds:.0f} s {what}" for what, seconds in took.items())
    print(f"{met} of {len(judged)} targets met; {times}")
    return met == len(judged)


def store_wish(options: argparse.Namespace) -> StoreWish:
    letters = options.letters or (1_000 if options.quick else 100_000)
    done = options.done if options.done is not None else 5_000 if options.quick else 1_000_000
    redis_done = options.redis_done if options.redis_done is not None else done // 5
    rounds, samples, seconds = (1, 2, 0.01) if options.quick else (options.rounds, 6, 0.02)
    return StoreWish(re.compile(options.rows), rounds, samples, seconds, letters, done, redis_done)


def outbox_wish(options: argparse.Namespace) -> OutboxWish:
    rows = re.compile(options.rows)
    if options.quick:
        return OutboxWish(rows, 1, 1, 0.01, 200, 500, (1_000, 2_000, options.largest or 5_000), 1.0)
    sizes = (1_000, 100_000, options.largest or 1_000_000)
    return OutboxWish(rows, options.rounds, 2, 0.04, 2_000, 10_000, sizes, 20.0)


def workflows_wish(options: argparse.Namespace) -> WorkflowsWish:
    rows = re.compile(options.rows)
    if options.quick:
        return WorkflowsWish(rows, 1, 1, 0.0, 40, 20, (10, 50, 100), (100, 300, options.kept or 600), 1.0)
    kept = options.kept or 100_000
    return WorkflowsWish(
        rows, options.rounds, 4, 0.0, 200, 200, (100, 1_000, 10_000), (1_000, max(2_000, kept // 10), kept), 20.0
    )


def server_wish(options: argparse.Namespace) -> ServerWish:
    rows, quick = re.compile(options.rows), options.quick
    kept = options.rows_kept or (20_000 if quick else 1_000_000)
    bulk, rate = options.bulk or (500 if quick else 100_000), options.rate or (500 if quick else 2_000)
    rounds, samples = (1, 4) if quick else (options.rounds, 8)
    return ServerWish(rows, rounds, samples, 0.0, kept, bulk, rate, 2.0 if quick else 10.0)


def is_whole(options: argparse.Namespace) -> bool:
    """Whether the run is one for the documentation."""
    return not (options.quick or options.rows or options.no_peers)


def write(page: Path, text: str) -> None:
    page.parent.mkdir(exist_ok=True)
    page.write_text(text)
    print(f"wrote {page}")


if __name__ == "__main__":
    sys.exit(main())
