"""A worker in a process of its own: `python -m examples.fulfilment.worker URL FOLDER`."""

from __future__ import annotations

import sys
from pathlib import Path

from examples.fulfilment.orders import Orders
from examples.fulfilment.outside import Outside
from holdfast import Holdfast

if __name__ == "__main__":
    with Holdfast(sys.argv[1]) as hold:
        Orders(Outside(Path(sys.argv[2]))).known_to(hold)
        hold.worker().run()
