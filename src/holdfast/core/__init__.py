"""The shared vocabulary: outcome, deadline, context, classification, backoff, clock."""
