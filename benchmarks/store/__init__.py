"""The benchmarks of the store, dead letters and shared breakers: `python -m benchmarks --only store`."""
