"""Random histories: every store against the memory store."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import seed as starting_from
from hypothesis.stateful import run_state_machine_as_test

from holdfast.store.port import Store
from holdfast.testing.store.machine import StoreMachine
from tests.stores import STORES, fresh_store


@pytest.mark.torture
@pytest.mark.parametrize("name", STORES)
def test_a_store_says_what_memory_says_after_any_history(name: str, tmp_path: Path, seed: int, size: int) -> None:
    class Machine(StoreMachine):
        def make_store(self) -> Store:
            self.places = ExitStack()
            return self.places.enter_context(fresh_store(name, tmp_path))

        def teardown(self) -> None:
            if hasattr(self, "places"):
                self.places.close()

    run_state_machine_as_test(
        starting_from(seed)(Machine),
        settings=settings(
            max_examples=15 * size,
            stateful_step_count=25,
            deadline=None,
            database=None,
            # Shrinking takes minutes, which an everyday run does not have.
            phases=(Phase.generate, Phase.shrink) if size > 1 else (Phase.generate,),
            suppress_health_check=list(HealthCheck),
        ),
    )
