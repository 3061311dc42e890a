"""Jars from elsewhere: found, fetched, and kept in the user's cache folder."""
