"""A Holdfast at a server's: the parts that commands ask as if a store were here."""
