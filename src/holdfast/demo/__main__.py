"""`python -m holdfast.demo`: `holdfast demo` without the other commands."""

from __future__ import annotations

import sys
from importlib.util import find_spec

INSTALL = "the demo needs the extra demo: pip install 'holdfast[demo]'"


def main() -> int:
    """Run the command; the exit status."""
    if find_spec("click") is None:
        print(INSTALL, file=sys.stderr)
        return 1
    import click

    from holdfast.demo.command import demo
    from holdfast.errors import HoldfastError

    try:
        return int(demo.main(prog_name="python -m holdfast.demo", standalone_mode=False) or 0)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except HoldfastError as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
