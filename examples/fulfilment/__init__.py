"""Orders that are paid for, approved, packed and shipped, by workers that are killed.

`python -m examples.fulfilment` tells the story. Start to read with `orders.py`.
"""
