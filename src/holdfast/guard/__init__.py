"""Guard a call: policies, strategies, pipeline, the fused fast path."""
