"""Acts on accounts that are refused."""

from __future__ import annotations

from enum import StrEnum

from holdfast.errors import HoldfastError


class Refusal(StrEnum):
    """Why."""

    UNKNOWN = "unknown"
    TAKEN = "taken"
    LAST_ADMIN = "last_admin"
    BEYOND_RIGHTS = "beyond_rights"


class AccessRefused(HoldfastError):
    """An act on an account that cannot or must not be done; `reason` says why, the message what to do."""

    def __init__(self, reason: Refusal, detail: str) -> None:
        super().__init__(reason, detail)
        self.reason = reason
        self.detail = detail

    def __str__(self) -> str:
        return self.detail
