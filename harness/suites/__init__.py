"""Runs of many plans: a matrix (one table of rows and columns), or a suite (what CI runs, and what it reads of it)."""
