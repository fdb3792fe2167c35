"""External calls that must happen: recorded in the caller's transaction, made afterwards, audited, never lost."""
