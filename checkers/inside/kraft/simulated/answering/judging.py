"""What judging a decision of the controller takes, whatever was asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from kio.schema.errors import ErrorCode

from cluster_image.kraft.controller.term import Step
from cluster_image.kraft.metadata.image import MetadataImage, PartitionRegistration

NONE: Final = ErrorCode.none


class Wrong(Exception):
    """A clause: what was decided, and what should have been."""


def hold(holds: bool, message: str) -> None:
    if not holds:
        raise Wrong(message)


def require(holds: bool, fact: str, answer: Any) -> None:
    if not holds:
        error = "nothing" if answer is None else answer.error_code.name
        message = getattr(answer, "error_message", None)
        raise Wrong(f"{fact}, and it answers {error}{f' ({message})' if message else ''}")


def answers_of(step: Step) -> Sequence[Any]:
    for name in ("topics", "responses", "results"):
        if (answers := getattr(step.answer, name, None)) is not None:
            return list(answers)
    return []


def held(partition: PartitionRegistration) -> tuple[int, ...]:
    """Its replicas before the move that is under way."""
    return tuple(replica for replica in partition.replicas if replica not in partition.adding)


def why_not(replicas: Sequence[int], image: MetadataImage) -> str | None:
    """Why these can be no replicas of a partition."""
    if not replicas or len(set(replicas)) < len(replicas):
        return f"{list(replicas)} are no replicas"
    unknown = [replica for replica in replicas if replica not in image.brokers]
    return f"{unknown} are no brokers" if unknown else None
