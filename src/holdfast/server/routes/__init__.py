"""A file for each resource, or a few. Those named here have `routes`, which are the API. The first route that fits
answers, so what is no id comes first.
"""

from typing import Final

RESOURCES: Final = (
    "system", "session", "access", "events", "overview", "guards", "breakers", "retry", "pools", "letter_keeping",
    "letters", "bulk", "outbox_keeping", "outbox", "sagas", "workflow_keeping", "workflows", "workflow_control",
    "schedules", "workers", "audit", "doctor",
)  # fmt: skip
