"""The console in a real browser. It is a package so that one browser, and not one per module, serves all of it."""
