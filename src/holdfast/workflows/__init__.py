"""Durable workflows: graphs of tasks that are carried on by whoever is alive."""
