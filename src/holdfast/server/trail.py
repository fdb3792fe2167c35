"""What operators do, in the audit trail: before it is done, so that nothing is done that is not in it.

A store without a trail (Redis, memory) leaves a line in the log `holdfast.audit` instead.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from holdfast.access.rights import Identity
from holdfast.app import Holdfast
from holdfast.audit.event import AuditEvent, AuditEventType
from holdfast.core.redact import MASK, is_secret_key, redact
from holdfast.errors import ConfigurationError, MissingExtra
from holdfast.server.problems import refused
from holdfast.store.codec import clean_text

if TYPE_CHECKING:  # a store without a trail does without SQLAlchemy
    from holdfast.audit.sink import DatabaseAuditSink

_LOG: Final = logging.getLogger("holdfast.audit")
_LONGEST: Final = 500
SUBJECT: Final = "operator"


class Trail:
    """Writes down who asked for what. `is_chained` says whether it is the audit trail, or only a log."""

    def __init__(self, hold: Holdfast) -> None:
        self._sink: DatabaseAuditSink | None
        try:
            self._sink = hold.audit
        except (ConfigurationError, MissingExtra):
            self._sink = None

    @property
    def is_chained(self) -> bool:
        return self._sink is not None

    def acted(
        self,
        identity: Identity,
        act: str,
        right: str,
        target: Mapping[str, str],
        reason: str,
        how: Mapping[str, str] | None = None,
    ) -> None:
        """Somebody is about to act: on what, why and how. Raises what the store raises: then it must not be done.

        Raises ProblemError where the trail is written with another key: an event of ours would break its chain.
        """
        if self._sink is not None and not self._sink.has_the_key():
            raise refused(
                "another_audit_key", "the audit trail is written with another key than this server has; start it with "
                "--app of the program, or with HOLDFAST_AUDIT_KEY",
            )  # fmt: skip
        facts = {"right": right, "reason": _text(reason), **_named("on", target), **_named("with", how or {})}
        self._write(AuditEventType.OPERATOR_ACTED, identity, act, facts)

    def failed(self, identity: Identity, act: str, target: Mapping[str, str], error: Exception) -> None:
        """It was refused, or failed."""
        told = {"error": type(error).__name__, **_named("on", target)}
        try:
            self._write(AuditEventType.OPERATOR_ACT_FAILED, identity, act, told)
        except Exception:
            _LOG.exception("%s by %s failed, and the trail does not say so", act, identity.name)

    def _write(self, kind: AuditEventType, identity: Identity, act: str, facts: Mapping[str, str]) -> None:
        payload: dict[str, str | int | bool] = {"act": act, "via": identity.via, **facts}
        if self._sink is None:
            _make_heard()
            _LOG.info("%s by %s: %s", kind.value, identity.name, payload)
        else:
            self._sink.append(
                AuditEvent(event_type=kind, subject_ref=f"{SUBJECT}:{identity.name}"[:255], payload=payload)
            )


def _named(prefix: str, values: Mapping[str, str]) -> dict[str, str]:
    return {f"{prefix}_{name}": MASK if is_secret_key(name) else _text(value) for name, value in values.items()}


def _text(value: str) -> str:
    return redact(clean_text(value), _LONGEST)


def _make_heard() -> None:
    """A line that no handler takes, or that the root's level drops, would be no record: then it goes to stderr."""
    if not _LOG.isEnabledFor(logging.INFO):
        _LOG.setLevel(logging.INFO)
    if not _LOG.hasHandlers():
        _LOG.addHandler(logging.StreamHandler())
