"""A process that measures the contenders of one environment: a request per line in, figures per line out."""

import json
import sys
from importlib import import_module
from typing import Any

from benchmarks.floor import Bare, Floor
from benchmarks.least import Least
from benchmarks.measure import measure
from benchmarks.rows import BY_KEY, ROWS, Row


def offers(contender: Any, row: Row, colour: str) -> bool:
    policy = getattr(contender, row.policy, None)
    return policy is not None and (not row.is_call or colour in getattr(policy, "colours", contender.colours))


def serve(side: str) -> None:
    contenders: list[Any] = [Bare(), Floor(), Least()] if side == "ours" else [Bare()]
    complaint = ""
    try:
        contenders += import_module(f"benchmarks.{side}").CONTENDERS
    except Exception as error:
        complaint = describe(error)
    cases = [
        (row.key, colour, contender.label)
        for row in ROWS
        for colour in row.colours
        for contender in contenders
        if offers(contender, row, colour)
    ]
    say({"cases": cases, "complaint": complaint})
    by_label = {contender.label: contender for contender in contenders}
    for line in sys.stdin:
        request = json.loads(line)
        key, colour, label = request["case"]
        try:
            figures = measure(by_label[label], BY_KEY[key], colour, request["samples"], request["seconds"])
            say({"figures": figures})
        except Exception as error:
            say({"error": describe(error)})


def describe(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:300]


def say(answer: dict[str, Any]) -> None:
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    serve(sys.argv[1])
