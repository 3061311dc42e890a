"""A simulated machine's disk."""
