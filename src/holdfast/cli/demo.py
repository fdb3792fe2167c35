"""`holdfast demo`: a simulated shop with trouble, and its console."""

from __future__ import annotations

from holdfast.demo.command import demo

__all__ = ["demo"]
