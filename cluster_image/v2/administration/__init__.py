"""Administrators' commands, which any broker carries out: `admin.py` takes one on a topic after the other, by a lock in
ZooKeeper; `command.py` is what is done meanwhile."""
