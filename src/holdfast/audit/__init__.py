"""The audit trail: append-only, hash-chained, and a verifier for it."""
