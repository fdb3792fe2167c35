"""Dead letters: what failed for good is kept, found, replayed and aged."""
