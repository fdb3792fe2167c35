"""Which configuration workflows were started with, and what to do when it is another one now."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from holdfast.errors import ConfigurationError, Conflict
from holdfast.machine.run import Advance
from holdfast.store.codec import from_json, plain_to_json
from holdfast.store.port import Insert, Store
from holdfast.workflows.configs import Configs
from holdfast.workflows.fingerprint import Drift, config_drift
from holdfast.workflows.model import Workflow
from holdfast.workflows.records import CONFIG, ConfigRecord
from holdfast.workflows.run import Run

CONFIG_OF: Final = "config"
"""In what is told of a workflow: the fingerprint of everything that the engine was told when it started."""
_POLICY: Final = "drift_policy"
"""To say what follows from a drift is none."""
_log: Final = logging.getLogger("holdfast")


class Drifting:
    """Compares what workflows were started with to what the engine is told now; `drift_policy` says what follows."""

    def __init__(self, store: Store, configs: Configs) -> None:
        self._store = store
        self._configs = configs
        self._is_stored = False

    def remember(self) -> str:
        """The fingerprint of now; what it stands for is in the store."""
        id = self._configs.fingerprint
        if not self._is_stored and self._store.get(CONFIG, [id])[0] is None:
            record = ConfigRecord(id, 1, None, self._store.now(), plain_to_json(self._configs.values))
            try:
                self._store.commit([Insert(CONFIG, record)])
            except Conflict:
                pass  # another process has the same
        self._is_stored = True
        return id

    def values_of(self, about: Mapping[str, Any]) -> dict[str, Any] | None:
        """Every field as it was; None where nothing is known."""
        id = about.get(CONFIG_OF)
        found = None if id is None else self._store.get(CONFIG, [id])[0]
        return None if found is None else from_json(found.fields)

    def of(self, about: Mapping[str, Any]) -> dict[str, Drift]:
        """What has changed since a workflow started."""
        if about.get(CONFIG_OF) in (None, self._configs.fingerprint):
            return {}
        values = self.values_of(about)
        return {} if values is None else config_drift(values, *self._configs.all)

    def at_start(self, workflow: Workflow) -> list[str]:
        """The fields that are not as the workflow's `config_version` says. Raises ConfigurationError by policy."""
        return self._judged(workflow.label, config_drift(workflow, *self._configs.all))

    def tell(self, run: Run, step: Advance) -> None:
        """Have the log say what has changed, when a workflow is taken up again. Raises ConfigurationError."""
        names = self._judged(f"workflow {run.id}", self.of(from_json(run.about)))
        if names:
            step.note("config_drifted", fields=names)

    def _judged(self, label: str, drift: Mapping[str, Drift]) -> list[str]:
        policy = self._configs.engine.drift_policy
        drift = {name: one for name, one in drift.items() if name != _POLICY}
        if not drift or policy == "ignore":
            return []
        told = ", ".join(f"{name} was {one.old!r} and is {one.new!r}" for name, one in drift.items())
        if policy == "refuse":
            raise ConfigurationError(
                f"{label} was started with another configuration: {told}; go back to that one, or set drift_policy"
            )
        _log.warning("workflows: %s was started with another configuration: %s", label, told)
        return list(drift)
