"""The stores of `tests/stores.py`, and failed asserts of the public suite with their values."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("holdfast.testing.store")

from tests.stores import store  # noqa: E402  # after the line above, which acts on imports

__all__ = ["store"]
