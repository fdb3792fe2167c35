"""Deterministic decisions: no clock, no lock, no I/O."""
