"""Strikes in every operation of the nodes on their disks in turn, each in a run of its own."""
