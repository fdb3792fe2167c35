"""Endpoint pools: selection, rotation, a breaker per endpoint."""
