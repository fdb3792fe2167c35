"""Writes the API's OpenAPI document: `python -m holdfast.server.openapi > console/openapi.json`."""

from __future__ import annotations

import json
import sys
from typing import Any

from holdfast.app import Holdfast
from holdfast.server.api import create_app


def document() -> dict[str, Any]:
    """What the API of this version answers to, whatever store is behind it."""
    with Holdfast("memory://") as hold:
        return create_app(hold).openapi()


def main() -> None:
    """Print it, always with the same bytes for the same API."""
    sys.stdout.write(json.dumps(document(), indent=1, sort_keys=True, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
