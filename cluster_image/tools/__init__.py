"""`python -m cluster_image describe-quorum | describe-topic | dump-log …`: looking at a cluster and at its files; and
`create-topic | delete-topic | alter-topic | reassign | add-brokers | remove-broker | rebalance …`: changing it.

Exit codes: 0; 1, what was looked at is damaged or missing (the rest is shown); 2, it could not be looked at.
"""

from __future__ import annotations

from .command_line import COMMANDS, main

__all__ = ["COMMANDS", "main"]
