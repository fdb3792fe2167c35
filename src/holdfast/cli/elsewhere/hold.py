"""A Holdfast at a server's. Each part has the methods of its original that commands use and that the API can do, and
hands out the same objects. Who acts is whom the server knows by the token, whatever `--by` says.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import cached_property
from typing import Any

from holdfast.cli.elsewhere.audit import RemoteAudit
from holdfast.cli.elsewhere.breakers import RemoteBreakers
from holdfast.cli.elsewhere.letters import RemoteLetters
from holdfast.cli.elsewhere.outbox import RemoteOutbox
from holdfast.cli.elsewhere.part import Part
from holdfast.cli.elsewhere.sagas import RemoteSagas
from holdfast.cli.elsewhere.workflows import RemoteWorkflows
from holdfast.cli.remote import Remote
from holdfast.store.codec import micros
from holdfast.telemetry.hub import Hub


class RemoteHold(Part):
    """A Holdfast at a server's."""

    def __init__(self, remote: Remote) -> None:
        super().__init__(remote)
        self.telemetry = Hub()

    @cached_property
    def store(self) -> RemoteStore:
        return RemoteStore(self._remote)

    @cached_property
    def letters(self) -> RemoteLetters:
        return RemoteLetters(self._remote)

    @cached_property
    def breakers(self) -> RemoteBreakers:
        return RemoteBreakers(self._remote)

    @cached_property
    def workflows(self) -> RemoteWorkflows:
        return RemoteWorkflows(self._remote)

    @cached_property
    def works(self) -> RemoteWorks:
        return RemoteWorks(self._remote)

    def close(self) -> None:
        """Nothing is open."""


class RemoteStore(Part):
    """Where the server is, and its store's time."""

    @property
    def url(self) -> str:
        return self._remote.url

    def now(self) -> int:
        """Microseconds since 1970, by the store's clock."""
        return micros(datetime.fromisoformat(self._remote.get("/status")["now"]))

    def ping(self) -> None:
        """Whoever is asked next says whether it is there."""

    def subscribe(self, topic: str, wake: Callable[[], Any]) -> Unsubscribed:
        """Nothing wakes: whoever waits looks again after a while."""
        return Unsubscribed()


class Unsubscribed:
    """Hears nothing."""

    def close(self) -> None:
        """Nothing is open."""


class RemoteWorks(Part):
    """The outbox, sagas and audit trail behind a server."""

    @cached_property
    def outbox(self) -> RemoteOutbox:
        return RemoteOutbox(self._remote)

    @cached_property
    def sagas(self) -> RemoteSagas:
        return RemoteSagas(self._remote)

    @cached_property
    def audit(self) -> RemoteAudit:
        return RemoteAudit(self._remote)
