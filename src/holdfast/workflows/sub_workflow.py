"""Another workflow, asked for by a task. What starts it is in `children.py`: a program that only names its tasks does
not load the engine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple


class SubWorkflow(NamedTuple):
    """What a task returns to have another workflow started, by the name that it is known by.

    The stage ends with it, and leaves what it returns. With `wait=False` the stage does not wait, and leaves its id.
    After `timeout` seconds it is cancelled, and the stage has failed.
    """

    name: str
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = {}
    wait: bool = True
    timeout: float | None = None
