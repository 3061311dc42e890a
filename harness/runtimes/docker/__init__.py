"""The Docker runtime: runtime.py. Imported by nobody who runs elsewhere: the Docker client takes a while."""
