"""The store in an SQL database: SQLite, PostgreSQL, MariaDB. `store.py` has the verbs, `dialect.py` what differs."""
