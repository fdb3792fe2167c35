"""The benchmark suite: `python -m benchmarks` from the repository root."""
