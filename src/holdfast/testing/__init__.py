"""Manual clock, fault injection and fixtures, for users and for us."""
