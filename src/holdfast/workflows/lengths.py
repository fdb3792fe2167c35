"""Lengths of time as people read them."""

from __future__ import annotations

from datetime import datetime


def took(start: datetime | None, end: datetime | None, now: datetime | None = None) -> str:
    """How long it took, or has taken until `now`; nothing for what has not begun, or may still go on."""
    if start is None or (end or now) is None:
        return ""
    return length(((end or now or start) - start).total_seconds())


def length(seconds: float) -> str:
    """`0 ms`, `120 ms`, `3.4 s`, `2 min 5 s`, `3 h 4 min`, `2 d 3 h`."""
    if seconds < 0.9995:
        return f"{max(0, round(seconds * 1000))} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for large, small, most, size, part in (("min", "s", 3600, 60, 1), ("h", "min", 86400, 3600, 60)):
        if whole < most:
            return f"{whole // size} {large} {whole % size // part} {small}"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"
