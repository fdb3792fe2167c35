"""A program with something to replay, for `--app tests.cli.shop:make`. It does as the environment says."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from typing import Final

from holdfast import Breaker, Retry
from holdfast.app import Holdfast

URL: Final = "HOLDFAST_TEST_SHOP"
DOWN: Final = "HOLDFAST_TEST_SHOP_DOWN"
STUCK: Final = "HOLDFAST_TEST_SHOP_STUCK"
APP: Final = "tests.cli.shop:make"
SEVEN: Final = 7


def opened(url: str) -> tuple[Holdfast, Callable[[str, int], int]]:
    """The shop, and its function that can be replayed."""
    hold = Holdfast(url)

    @hold.guard("payments", Retry(attempts=1), dead_letter=True).replayable(name="charge")
    def charge(order_id: str, amount: int) -> int:
        if os.environ.get(DOWN):
            raise ConnectionError("refused")
        if os.environ.get(STUCK):
            sys.stdout.write("stuck\n")
            sys.stdout.flush()
            threading.Event().wait()
        return amount

    return hold, charge


def make() -> Holdfast:
    return opened(os.environ[URL])[0]


def guarded() -> Holdfast:
    """A shop with a breaker that it shares."""
    hold = make()
    hold.guard("stock", Breaker())
    return hold


def broken() -> Holdfast:
    raise RuntimeError("no configuration")
