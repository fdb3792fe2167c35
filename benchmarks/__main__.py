"""`python -m benchmarks`: measure Holdfast, its peers and the floor, and write docs/benchmarks.md."""

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks import report
from benchmarks.run import HERE, Case, Results, Worker, collect, peers_python

ROOT = HERE.parent
PEERS = ROOT / ".venv-peers"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one short round; leaves the page alone")
    parser.add_argument("--rows", metavar="REGEX", default="", help="only rows whose `key colour` matches")
    parser.add_argument("--rounds", type=int, default=5, help="rounds over everything (default 5)")
    parser.add_argument("--json", metavar="FILE", type=Path, help="also write every figure as JSON")
    parser.add_argument("--page", metavar="FILE", type=Path, help="the page, by default docs/benchmarks.md")
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
    rounds, seconds = (1, 0.01) if options.quick else (options.rounds, 0.04)
    with ExitStack() as stack:
        workers = [stack.enter_context(Worker("ours", sys.executable))]
        if not options.no_peers:
            workers.append(stack.enter_context(Worker("peers", peers_python(options.peers))))
        progress = stack.enter_context(progress_line())
        results = collect(workers, re.compile(options.rows), rounds, seconds, progress)
    met = show(results)
    if options.json:
        options.json.write_text(json.dumps(report.raw(results), indent=1) + "\n")
    whole = not (options.quick or options.rows or options.no_peers)
    if options.page or whole:
        page = options.page or ROOT / "docs" / "benchmarks.md"
        page.parent.mkdir(exist_ok=True)
        page.write_text(report.page(results, f"{rounds} rounds, samples of {seconds * 1e3:.0f} ms"))
        print(f"wrote {page}")
    return int(options.strict and not met)


if __name__ == "__main__":
    sys.exit(main())
