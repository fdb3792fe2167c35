"""Events, listeners, metrics and sinks."""
