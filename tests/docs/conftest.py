"""Pages use the process-wide hub, as users do; what they leave there is taken away again."""

from __future__ import annotations

import pytest

from holdfast.testing import unchanged


@pytest.fixture(autouse=True)
def _a_hub_as_it_was():
    with unchanged():
        yield
