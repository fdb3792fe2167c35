"""A file for each resource. Each has `routes`; those named here are part of the API."""

from typing import Final

RESOURCES: Final = (
    "system", "session", "access", "events", "overview", "guards", "breakers", "retry", "pools", "letters", "bulk",
    "outbox", "sagas", "workflows", "schedules", "workers", "audit", "doctor",
)  # fmt: skip
