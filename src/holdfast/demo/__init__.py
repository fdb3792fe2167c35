"""A flaky dependency under load, bare and then guarded: `python -m holdfast.demo`."""
