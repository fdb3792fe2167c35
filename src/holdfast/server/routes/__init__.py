"""A file for each resource, or two. Each has `routes`; those named here are part of the API. The first route that fits
answers, so what is no id comes first.
"""

from typing import Final

RESOURCES: Final = (
    "system", "session", "access", "events", "overview", "guards", "breakers", "retry", "pools", "letter_keeping",
    "letters", "bulk", "outbox_keeping", "outbox", "sagas", "workflow_keeping", "workflows", "schedules", "workers",
    "audit", "doctor",
)  # fmt: skip
