"""The tasks that every engine knows, because what bodies of workflows call becomes one."""

from __future__ import annotations

from typing import Final

from holdfast.workflows.loops import LOOP_TASKS
from holdfast.workflows.waiting import sleep, wait_signal

BUILT_IN: Final = (sleep, wait_signal, *LOOP_TASKS)
