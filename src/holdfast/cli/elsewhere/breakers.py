"""The circuit breakers behind a server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from holdfast.breakers.data import CircuitBreakerStateData
from holdfast.breakers.sharing import SharingStatus
from holdfast.cli.api import PAGE, part
from holdfast.cli.elsewhere.part import Part, made, why
from holdfast.cli.exits import NotFound


class RemoteBreakers(Part):
    """The breakers behind a server."""

    def get_all_states(self) -> list[CircuitBreakerStateData]:
        return list(self._found())

    def get_open_states(self, limit: int | None = None) -> list[CircuitBreakerStateData]:
        return list(self._found(state="open"))[:limit]

    def get_by_service_name(self, service_name: str) -> CircuitBreakerStateData | None:
        try:
            return made(CircuitBreakerStateData, self._remote.get(f"/breakers/{part(service_name)}"))
        except NotFound:
            return None

    def status(self) -> SharingStatus:
        """No circuit of this process is shared."""
        return SharingStatus(self._remote.url, "", True, None, None, (), ())

    def atomic_force_open(self, name: str, reason: str, by: Any = None, minutes: int = 90) -> tuple[bool, str, str]:
        return self._act(name, "force-open", {"reason": reason, "ttl_minutes": minutes})

    def atomic_force_close(self, name: str, reason: str, by: Any = None, *, ttl_minutes: int) -> tuple[bool, str, str]:
        return self._act(name, "force-close", {"reason": reason, "ttl_minutes": ttl_minutes})

    def atomic_reset(self, name: str, reason: str = "", by: Any = None) -> tuple[bool, str, str]:
        return self._act(name, "reset", {"reason": reason or why()})

    def clear_manual_control(self, name: str) -> bool:
        return self._act(name, "clear", {"reason": why()})[0]

    def _act(self, name: str, act: str, body: dict[str, Any]) -> tuple[bool, str, str]:
        """Whether it was done; that it moved is told by the server's process, not by this one."""
        try:
            after = self._remote.post(f"/breakers/{part(name)}/{act}", body)["state"]
        except NotFound:
            return False, "", ""
        return True, after, after

    def _found(self, **where: Any) -> Iterator[CircuitBreakerStateData]:
        after: str | None = None
        while True:
            page = self._remote.get("/breakers", limit=PAGE, after=after, **where)
            for one in page["items"]:
                yield made(CircuitBreakerStateData, one)
            after = page["next"]
            if after is None:
                return
