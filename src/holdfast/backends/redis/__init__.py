"""The store in Redis or Valkey: documents and index sets, changed by one compare-and-swap script."""
