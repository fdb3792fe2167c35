"""What a caller's type checker sees, under mypy and pyright at their strictest.

The files in `tests/typing/` are checked, never run. `assert_type(expression, Type)` pins an inferred type;
`reveal_type` is allowed while exploring. A line that must be an error carries an ignore for each checker,

    charge("x")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

and both checkers reject an ignore that nothing needs, so the line fails when the error goes away.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TYPING = ROOT / "tests" / "typing"
FILES = sorted(str(path.relative_to(ROOT)) for path in TYPING.glob("*.py"))

CHECKERS = {
    "mypy": ["mypy", "--strict", "--no-error-summary", *FILES],
    "pyright": ["pyright", "--project", str(TYPING), "--pythonpath", sys.executable],
}


@pytest.mark.parametrize("checker", CHECKERS)
def test_a_callers_code_means_the_same_to(checker: str) -> None:
    assert FILES, "tests/typing/ holds no files to check"
    answer = subprocess.run(
        [sys.executable, "-m", *CHECKERS[checker]],
        cwd=ROOT,
        env=os.environ | {"PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"},
        capture_output=True,
        text=True,
    )
    assert answer.returncode == 0, f"{checker} disagrees with tests/typing/:\n{answer.stdout}{answer.stderr}"
