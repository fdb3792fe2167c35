"""What workers of all kinds share."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar


class _Worker(Protocol):
    def start(self) -> Any: ...
    def stop(self, timeout: float | None = None) -> bool: ...


W = TypeVar("W", bound=_Worker)


class Working:
    """Works until the end of a block, `with hold.worker(): …`, and waits there for what it has begun."""

    def __enter__(self: W) -> W:
        self.start()
        return self

    def __exit__(self: _Worker, *exc: object) -> None:
        self.stop()
