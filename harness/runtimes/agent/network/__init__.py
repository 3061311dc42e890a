"""A node's network card: what passes it, and what is done to that."""
