"""The example that the README shows."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_example_in_the_readme_runs() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "guarded_payments.py")],
        capture_output=True, text=True, timeout=60, env={**os.environ, "PYTHONIOENCODING": "utf-8"}, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "receipt for order 1: 19.99 EUR" in done.stdout
    assert "ConnectionError: bank is down" in done.stdout
    assert "refused: circuit_open, try again in 30 s" in done.stdout
    assert "order 4, synchronous: rejected" in done.stdout
