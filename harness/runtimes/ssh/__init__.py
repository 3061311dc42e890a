"""The SSH runtime: each node on a host of the user's own, named in a file (hosts_file.py).

A session (sessions.py) reaches a host; what a node needs is put there (install.py); an agent, ../agent/host, is started
with sudo and asked over the session (agents.py). From then on a node is broken and mended as in a container.
"""
