"""Logs, as clients see them: linearizability, and availability. `linearizability` opens with the definitions."""
