"""Forked processes: they have all that their parent had, but for its threads."""

from __future__ import annotations

import os
from collections.abc import Callable
from weakref import WeakMethod


def renew_in_forks(renew: Callable[[], object]) -> None:
    """Have this method called in each process that is forked from now on, as long as somebody has its object."""
    if hasattr(os, "register_at_fork"):
        own = WeakMethod(renew)
        os.register_at_fork(after_in_child=lambda: None if (method := own()) is None else method())


def pause_for_forks(pause: Callable[[], object], go_on: Callable[[], object]) -> None:
    """Have these methods called before this process forks, and after that in the parent."""
    if hasattr(os, "register_at_fork"):
        before, after = WeakMethod(pause), WeakMethod(go_on)
        os.register_at_fork(
            before=lambda: None if (method := before()) is None else method(),
            after_in_parent=lambda: None if (method := after()) is None else method(),
        )
