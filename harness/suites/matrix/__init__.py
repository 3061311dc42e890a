"""A matrix: rows and columns of plans (file.py), what its runs came to (files.py), and as a table (tables.py)."""
