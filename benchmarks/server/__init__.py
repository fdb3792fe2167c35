"""Benchmarks of the server: pages of very full stores, reads in great number, a bulk operation whose worker dies."""
