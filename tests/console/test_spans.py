"""How long something took: exact to the microsecond, as the API has it, and said as people say it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from typing import Any

import pytest

from tests.console.building import CONSOLE, build, builder

RUN = """
const [module, name, calls] = JSON.parse(process.argv[1]);
const { transpileModule, ModuleKind } = require("typescript");
const text = require("fs").readFileSync(module, "utf8");
const made = { exports: {} };
const code = transpileModule(text, { compilerOptions: { module: ModuleKind.CommonJS } }).outputText;
new Function("module", "exports", code)(made, made.exports);
process.stdout.write(JSON.stringify(calls.map((given) => made.exports[name](...given))));
"""


def answers(module: str, name: str, calls: Sequence[Sequence[Any]]) -> list[Any]:
    """What a function of the console's sources answers; its module imports nothing."""
    build()  # which installs the compiler
    given = json.dumps([str(CONSOLE / "src" / "parts" / module), name, calls])
    done = subprocess.run(
        [builder().find_node().program, "-e", RUN, given], cwd=CONSOLE, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return list(json.loads(done.stdout))


def test_a_span_is_exact_to_the_microsecond():
    cases: dict[tuple[str, str], float] = {
        ("2026-03-01T12:00:00.000900Z", "2026-03-01T12:00:00.004100Z"): 0.0032,
        ("2026-03-01T12:00:00.999999Z", "2026-03-01T12:00:01Z"): 0.000001,
        ("2026-03-01T12:00:00Z", "2026-03-01T12:00:00.000085+00:00"): 0.000085,
        ("2026-03-01T12:00:00.5Z", "2026-03-01T12:00:02.25Z"): 1.75,
        ("2026-03-01T12:00:00.25+00:00", "2026-03-01T13:00:00.25+01:00"): 0,
        ("1969-12-31T23:59:59.999990Z", "1970-01-01T00:00:00.000010Z"): 0.00002,
        ("2026-03-01T12:00:01Z", "2026-03-01T12:00:00Z"): 0,
        ("2026-03-01T12:00:00.123456789Z", "2026-03-01T12:00:00.123457Z"): 0.000001,
    }
    assert answers("span.ts", "span", list(cases)) == list(cases.values())


def test_what_is_no_moment_is_no_number():
    assert answers("span.ts", "micros", [("",), ("soon",)]) == [None, None]  # NaN has no JSON


@pytest.mark.parametrize("sign", [1, -1])
def test_a_length_of_time_has_the_digits_that_count(sign):
    cases: dict[float, str] = {
        0: "0 s", 0.0000003: "0.3 µs", 0.000085: "85 µs", 0.0009996: "1.0 ms", 0.0032: "3.2 ms", 0.00996: "10 ms",
        0.34: "340 ms", 0.9996: "1.0 s", 2.44: "2.4 s", 9.96: "10 s", 59.4: "59 s", 59.7: "59 s", 60: "1 min",
        185: "3 min 5 s", 3599: "59 min", 7500: "2 h 5 min", 86_400 * 4 + 3600: "4 d 1 h",
    }  # fmt: skip
    assert answers("text.ts", "duration", [(sign * one,) for one in cases]) == list(cases.values())
