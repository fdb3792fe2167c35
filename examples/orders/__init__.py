"""A shop: orders, payments that are undone when they must be, and customers who want to be forgotten.

`python -m examples.orders` tells its story. Start to read with `models.py`, then `ordering.py` and `saga.py`.
"""
