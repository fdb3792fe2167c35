"""Active probes: test a recovering endpoint without a caller's request."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING

from holdfast.core.outcome import Evidence
from holdfast.failover.endpoint import Endpoint
from holdfast.failover.member import Ticket

if TYPE_CHECKING:
    from holdfast.failover.pool import EndpointPool


class Trial:
    """An active probe of one endpoint. Leaving the block settles it; a failure is taken as the verdict, not raised."""

    __slots__ = ("_pool", "_ticket")

    def __init__(self, pool: EndpointPool, ticket: Ticket) -> None:
        self._pool = pool
        self._ticket: Ticket | None = ticket

    def settle(self, evidence: Evidence, error: BaseException | None = None) -> None:
        """Say what was learnt; only the first word counts."""
        ticket, self._ticket = self._ticket, None
        if ticket is not None:
            self._pool.settle(ticket, evidence, error)

    def __enter__(self) -> Endpoint:
        if self._ticket is None:
            raise RuntimeError("a trial can be entered once, while the loop is at it")
        return self._ticket.endpoint

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        if error is None:
            self.settle(Evidence.SUCCESS)
        elif isinstance(error, Exception):
            self.settle(Evidence.FAILURE, error)
        else:
            self.settle(Evidence.NEUTRAL)
        return isinstance(error, Exception)
