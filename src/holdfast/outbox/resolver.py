"""External systems that hold somebody's data: what they can do, and what they answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Protocol, runtime_checkable

from pydantic import BaseModel, Field, model_validator

from holdfast.errors import ConfigurationError, ResolverError
from holdfast.outbox.subject import FROZEN, LONGEST, Correction, Name, SubjectRef, Utc


class ResolverErasure(BaseModel):
    """The data is gone; `already_absent` if it was so before. `detail` is for the caller and never stored."""

    model_config = FROZEN

    resolver: Name
    already_absent: bool = False
    detail: str | None = None


class ResolverRectification(BaseModel):
    """The values are right; `already_consistent` if they were so before."""

    model_config = FROZEN

    resolver: Name
    already_consistent: bool = False
    detail: str | None = None


class ResolverScheduledErasure(BaseModel):
    """The system will forget the data by itself at `expires_at`, or has done so (`already_absent`)."""

    model_config = FROZEN

    resolver: Name
    expires_at: datetime | None = None
    already_absent: bool = False
    detail: str | None = None

    @model_validator(mode="after")
    def _says_one_of_both(self) -> ResolverScheduledErasure:
        if (self.expires_at is None) != self.already_absent:
            raise ValueError("say either expires_at or already_absent=True: it will be gone, or it is")
        if self.expires_at is not None and self.expires_at.tzinfo is None:
            raise ValueError(f"expires_at must have a time zone, {self.expires_at.isoformat()} has none")
        return self


class ResolverVerification(BaseModel):
    """Whether a look confirmed that the data is gone."""

    model_config = FROZEN

    resolver: Name
    confirmed_absent: bool
    checked_at: Utc = Field(default_factory=lambda: datetime.now(UTC))
    detail: str | None = None


@runtime_checkable
class Resolver(Protocol):
    """An external system that holds data of subjects. Every call may come twice, with the same idempotency key.

    A method that has a parameter `idempotency_key` gets the entry's id, one with a parameter `context` the whole
    `CallContext`. ResolverError says that no retry can help.
    """

    @property
    def name(self) -> str: ...

    async def export_subject(self, ref: SubjectRef) -> Any: ...

    async def erase_subject(self, ref: SubjectRef) -> ResolverErasure: ...


@runtime_checkable
class RectifyingResolver(Resolver, Protocol):
    """A system that can correct data."""

    async def rectify_subject(self, ref: SubjectRef, corrections: Sequence[Correction]) -> ResolverRectification: ...


@runtime_checkable
class RetentionOnlyResolver(Resolver, Protocol):
    """A system that cannot erase, but forgets by itself after a while. Its `erase_subject` raises ResolverError."""

    async def schedule_erasure(self, ref: SubjectRef) -> ResolverScheduledErasure: ...


@runtime_checkable
class VerifyingResolver(Resolver, Protocol):
    """A system that can be asked whether data is gone. The question changes nothing."""

    async def verify_absent(self, ref: SubjectRef) -> ResolverVerification: ...


class ResolverRegistry:
    """Resolvers by name."""

    def __init__(self) -> None:
        self._resolvers: dict[str, Any] = {}

    def register(self, resolver: Any) -> None:
        """Raises ResolverError for a name that is taken, ConfigurationError for what has no name."""
        name = getattr(resolver, "name", None)
        if not isinstance(name, str) or not 1 <= len(name) <= LONGEST:
            raise ConfigurationError(f"a resolver has a name of 1 to {LONGEST} characters, {resolver!r} has {name!r}")
        if resolver.name in self._resolvers:
            raise ResolverError(f"a resolver {resolver.name!r} is already registered")
        self._resolvers[resolver.name] = resolver

    def get(self, name: str) -> Any:
        """Raises ResolverError for a name that nobody registered."""
        try:
            return self._resolvers[name]
        except KeyError:
            known = ", ".join(self._resolvers) or "none"
            raise ResolverError(f"no resolver {name!r}; registered: {known}") from None

    def all(self) -> tuple[Any, ...]:
        """In the order of registration."""
        return tuple(self._resolvers.values())

    def register_from(
        self, settings: Mapping[str, Any], required: Sequence[str], build: Callable[[Mapping[str, Any]], Any]
    ) -> bool:
        """Build and register a resolver if its settings are there; False if none of them is.

        Raises ConfigurationError, which names the missing keys and no value, if only some are there.
        """
        missing = [key for key in required if settings.get(key) in (None, "")]
        if missing and len(missing) == len(required):
            return False
        if missing:
            raise ConfigurationError(f"settings are incomplete: {', '.join(missing)} must be set as well, or none")
        self.register(build(settings))
        return True
