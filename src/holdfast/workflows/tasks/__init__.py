"""The tasks that come with Holdfast: commands, Python, HTTP, containers, other hosts, waiting."""
