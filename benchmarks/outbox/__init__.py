"""The outbox against a queue written by hand, and against libraries that keep calls in a database."""
