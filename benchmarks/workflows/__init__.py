"""Workflows against an engine written by hand, and against libraries that keep workflows in a database."""
