"""A node's volume: what is on it, what is lost of it, and its faults."""
