"""Passwords: argon2id, at a price that makes guessing expensive. What is stored says what it cost."""

from __future__ import annotations

import secrets
import threading
from functools import cached_property
from typing import TYPE_CHECKING, Final

from holdfast.errors import MissingExtra, PolicyError

if TYPE_CHECKING:  # tokens need no password
    from argon2 import PasswordHasher

SHORTEST: Final = 12
LONGEST: Final = 1024
_AT_ONCE: Final = 4


class Passwords:
    """Makes and checks hashes. The defaults are the second recommendation of RFC 9106, at 64 MiB a hash.

    At most four are computed at a time, so that many who knock at once do not fill the memory.
    """

    def __init__(self, *, time_cost: int = 3, memory_kib: int = 65_536, lanes: int = 4) -> None:
        self._costs = (time_cost, memory_kib, lanes)
        self._turn = threading.BoundedSemaphore(_AT_ONCE)

    def hash(self, password: str) -> str:
        """Raises PolicyError for a password that is too short or too long."""
        check_password(password)
        with self._turn:
            return self._hasher.hash(password)

    def matches(self, stored: str | None, password: str) -> bool:
        """Whether it is this password's hash. Takes as long for None, which nothing matches."""
        from argon2.exceptions import InvalidHashError, VerificationError

        # A longer one can be nobody's, and would only cost time.
        given = password if len(password) <= LONGEST else ""
        hashed = self._decoy if stored is None else stored
        try:
            with self._turn:
                self._hasher.verify(hashed, given)
        except (VerificationError, InvalidHashError):
            return False
        return stored is not None

    def is_outdated(self, stored: str) -> bool:
        """Whether the hash was made at another price."""
        return self._hasher.check_needs_rehash(stored)

    @cached_property
    def _hasher(self) -> PasswordHasher:
        try:
            from argon2 import PasswordHasher
        except ModuleNotFoundError as error:
            raise MissingExtra("passwords need argon2-cffi; run: pip install 'holdfast[server]'") from error
        time_cost, memory_kib, lanes = self._costs
        return PasswordHasher(time_cost, memory_kib, lanes)

    @cached_property
    def _decoy(self) -> str:
        return self._hasher.hash(secrets.token_hex())


def check_password(password: str) -> None:
    """Raises PolicyError, without the password."""
    if not isinstance(password, str):
        raise PolicyError(f"a password is a text, got a {type(password).__name__}")
    if len(password) < SHORTEST:
        raise PolicyError(
            f"a password has at least {SHORTEST} characters, this one has {len(password)}; some words in a row will do"
        )
    if len(password) > LONGEST:
        raise PolicyError(f"a password has at most {LONGEST} characters, this one has {len(password)}")
