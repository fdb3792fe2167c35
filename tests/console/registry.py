"""The console's screens, as its registry has them."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from tests.console.building import CONSOLE

_LINE: Final = re.compile(
    r'\{ name: "(?P<name>\w+)", title: "(?P<title>\w+)", icon: "\w+", key: "(?P<key>\w)", right: "(?P<right>[\w:]+)",'
    r" paths: (?P<paths>\w+|\[.*?\])"
)


class Screen(NamedTuple):
    """A screen: its path is its name."""

    name: str
    title: str
    key: str
    right: str
    paths: str

    @property
    def has_things(self) -> bool:
        """Whether there are pages of single things below it."""
        return self.paths == "ONE"


def screens() -> list[Screen]:
    """All of them, in the order of the navigation."""
    text = (CONSOLE / "src" / "app" / "screens.ts").read_text()
    return [Screen(**line.groupdict()) for line in _LINE.finditer(text)]


SCREENS: Final = screens()
NAMES: Final = [screen.name for screen in SCREENS]
