"""Runs of this project written as Jepsen's histories."""
