"""Runs that were made before, once more: in simulation exactly as they were, in containers as far as the machine lets
them be."""
