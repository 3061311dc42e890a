"""A node that does what tests tell it over TCP: see __main__.py."""
