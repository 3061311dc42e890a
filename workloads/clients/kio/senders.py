"""Which kind of producer appends, by a plan's `producers`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from harness.plan.plan import Plan
from workloads.clients.kio.fenced import FencedSender
from workloads.clients.kio.pipelined import PipelinedSender

_SENDERS: Final[Mapping[str, Callable[..., Any]]] = {"idempotent": PipelinedSender, "fenced": FencedSender}


def sender_of(plan: Plan, own: Callable[..., Any]) -> Callable[..., Any]:
    """What makes a producer of a partition. own: of the workload, for a plan that says nothing else."""
    if plan.producers == "plain":
        return own
    # What was deleted is forgotten, so that a copy of it counts as new (KIP-360).
    return partial(_SENDERS[plan.producers], seed=plan.seed, late=plan.log_start == 0)
