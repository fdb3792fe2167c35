"""Thin, optional adapters to other libraries."""
