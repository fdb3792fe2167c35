"""Circuit breakers as data: the repository of their states, and sharing them between processes."""
