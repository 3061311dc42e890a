"""Spark: where it runs, its one session in this process, and work spread over it."""
