"""A shop with trouble, from the first failed call to the console: `holdfast demo`, or `python -m holdfast.demo`."""
