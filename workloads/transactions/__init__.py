"""Transactions of sends and polls: who carries them out, and what is recorded of them."""
