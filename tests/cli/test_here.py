"""The API without a server: all of its routes can be asked."""

from __future__ import annotations

from collections import defaultdict
from importlib import import_module

from holdfast.cli.here import FILES
from holdfast.server.routes import RESOURCES


def test_each_path_is_looked_for_in_all_files_that_have_routes_of_it_and_in_their_order() -> None:
    files: defaultdict[str, dict[str, None]] = defaultdict(dict)
    for name in RESOURCES:
        for route in import_module(f"holdfast.server.routes.{name}").routes.routes:
            files[route.path.strip("/").partition("/")[0]][name] = None
    assert {path: FILES.get(path, (path,)) for path in files} == {path: (*names,) for path, names in files.items()}
    assert FILES.keys() <= files.keys()
