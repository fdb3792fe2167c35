"""Run the workers of both environments in turns, so that a noisy moment hits everybody alike."""

import json
import re
import signal
import subprocess
import sys
import venv
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from types import TracebackType
from typing import Any, Self

from benchmarks.rows import BY_KEY, ROWS, Shape

HERE = Path(__file__).parent
Case = tuple[str, str, str]
"""Row key, colour, label; the bare call of the peers' environment is labelled `bare (peers)`."""


@dataclass
class Results:
    """Every figure of a run, by case, and what went wrong."""

    figures: dict[Case, list[float]] = field(default_factory=dict)
    errors: dict[Case, str] = field(default_factory=dict)
    complaints: list[str] = field(default_factory=list)

    def labels(self, key: str | None, colour: str) -> set[str]:
        return {case[2] for case in self.figures if case[:2] == (key, colour)}

    def value(self, key: str, colour: str, label: str) -> float | None:
        """The best figure of a case, the median for start-up, or None."""
        figures = self.figures.get((key, colour, label))
        if not figures:
            return None
        return median(figures) if BY_KEY[key].shape is Shape.STARTUP else min(figures)


class Worker:
    """A live process of one environment. It stands still while others are asked: some look for work all the time, and
    would take the processors from whoever is measured."""

    def __init__(self, side: str, python: str, module: str = "benchmarks.worker", *arguments: str) -> None:
        self.side = side
        self.process = subprocess.Popen(
            [python, "-m", module, side, *arguments],
            cwd=HERE.parent,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        hello = self.read()
        self.cases: list[Case] = [(key, colour, label) for key, colour, label in hello["cases"]]
        self.complaint: str = hello["complaint"]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.process.kill()
        self.process.wait()

    def ask(self, case: Case, samples: int, seconds: float) -> dict[str, Any]:
        self.send({"case": case, "samples": samples, "seconds": seconds})
        return self.read()

    def send(self, request: dict[str, Any]) -> None:
        assert self.process.stdin
        self.process.send_signal(signal.SIGCONT)
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()

    def read(self) -> dict[str, Any]:
        assert self.process.stdout
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"the {self.side} worker ended with status {self.process.wait()}")
        self.process.send_signal(signal.SIGSTOP)
        return json.loads(line)


def peers_python(directory: Path, requirements: Path = HERE / "peers.txt") -> str:
    """The interpreter of the peers' environment, made on first use."""
    python = directory / "bin" / "python"
    if not python.exists():
        print(f"installing the peers into {directory.name} …", file=sys.stderr)
        venv.create(directory, with_pip=True)
        install = [str(python), "-m", "pip", "install", "--quiet", "--requirement", str(requirements)]
        subprocess.run(install, check=True)
    return str(python)


def collect(
    workers: list[Worker],
    wanted: re.Pattern[str],
    rounds: int,
    seconds: float,
    progress: Callable[[int, int, Case], None],
) -> Results:
    """Measure every wanted case in each round, row by row and worker by worker."""
    results = Results(complaints=[f"{w.side}: {w.complaint}" for w in workers if w.complaint])
    plan = list(turns(workers, wanted))
    samples = 8  # many short ones: a shared machine is quiet for moments only
    for turn in range(rounds):
        for index, (worker, case) in enumerate(plan):
            progress(turn * len(plan) + index, rounds * len(plan), case)
            name = (*case[:2], "bare (peers)") if worker.side == "peers" and case[2] == "bare" else case
            if name in results.errors:
                continue
            answer = worker.ask(case, samples, seconds)
            if "error" in answer:
                results.errors[name] = answer["error"]
            else:
                results.figures.setdefault(name, []).extend(answer["figures"])
    return results


def turns(workers: list[Worker], wanted: re.Pattern[str]) -> Iterator[tuple[Worker, Case]]:
    for row in ROWS:
        for colour in row.colours:
            if wanted.search(f"{row.key} {colour}"):
                for worker in workers:
                    yield from ((worker, case) for case in worker.cases if case[:2] == (row.key, colour))
