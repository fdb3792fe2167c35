"""Several external calls that together either happen or are undone: the flows over `machine/saga.py`."""
