"""Publishers for real brokers, each in a module of its own that needs only its own client."""
