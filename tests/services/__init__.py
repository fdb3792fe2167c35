"""Real servers for the tests: private ones, started when a test first asks, or those that the environment names."""
