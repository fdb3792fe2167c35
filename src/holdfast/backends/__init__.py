"""The stores: memory (the reference), SQL and Redis. They know the verbs of `store/port.py` and no state names."""
