"""A service that was on this host before the run: its process, its machine, and how what was done to it is undone."""
