"""A worker of several parts, some of which cannot be made yet."""

from __future__ import annotations

from typing import Any, cast

import pytest

from holdfast.errors import ConfigurationError
from holdfast.letters.worker import Worker
from holdfast.outbox.joint import JointWorker, Part


class Counted:
    """A part, or the letters' worker: how often it has begun."""

    begun = 0

    def start(self) -> None:
        self.begun += 1


def broken() -> Part:
    raise ConfigurationError("it has no application")


def test_a_part_that_cannot_be_made_keeps_no_other_from_beginning_later() -> None:
    good, there = Counted(), list[Any]()
    late: dict[str, Any] = {
        "outbox": lambda: good if there else None,
        "workflows": lambda: broken() if there else None,
    }
    worker = JointWorker(cast("Worker", Counted()), late)
    worker.start()
    there.append(1)
    for _ in range(2):
        with pytest.raises(ConfigurationError):
            worker.take_up()
    assert good.begun == 1


def test_where_a_part_cannot_be_made_at_the_start_none_begins() -> None:
    good = Counted()
    worker = JointWorker(cast("Worker", Counted()), cast("Any", {"outbox": lambda: good, "workflows": broken}))
    with pytest.raises(ConfigurationError):
        worker.start()
    with pytest.raises(ConfigurationError):
        worker._take()
    worker.take_up()
    assert good.begun == 0
