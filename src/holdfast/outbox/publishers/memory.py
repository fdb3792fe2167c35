"""A publisher for tests: what is published stays in a list."""

from __future__ import annotations

from collections import deque

from holdfast.outbox.publishing import Message


class InMemoryPublisher:
    """Keeps every message that it was given, repeated ones too, in `messages`."""

    def __init__(self, *, name: str = "memory") -> None:
        self.name = name
        self.messages: list[Message] = []
        self._failures: deque[Exception] = deque()

    def fail(self, *errors: Exception) -> None:
        """Raise these instead of taking the next messages, one each."""
        self._failures.extend(errors)

    async def publish(self, message: Message) -> None:
        if self._failures:
            raise self._failures.popleft()
        self.messages.append(message)
