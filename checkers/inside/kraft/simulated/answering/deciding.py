"""What the controller decides of each request, judged when it decides it, by the metadata that this is based on (and
which is judged elsewhere)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from checkers.inside.violation import Violated
from cluster_image.kraft.controller.term import Step
from cluster_image.kraft.metadata.image import MetadataImage

from . import administration, brokers
from .judging import Wrong

#: The request, the metadata before the step and after it, and the step. Raises Wrong.
Check = Callable[[Any, MetadataImage, MetadataImage, Step], None]


class DecidingOracle:
    """min_insync_replicas: of topics without a value of their own. deletes_topics: delete.topic.enable. session_s:
    broker.session.timeout.ms, in seconds."""

    def __init__(self, min_insync_replicas: int, deletes_topics: bool, session_s: float) -> None:
        self._sessions = brokers.Sessions(session_s)
        self._found: Exception | None = None
        by_property: Mapping[str, Mapping[str, Check]] = {
            "AdministratorAnswered": administration.checks(min_insync_replicas, deletes_topics),
            "BrokerAnswered": brokers.CHECKS,
        }
        self._checks: Final = {
            f"{request}Request": (name, check)
            for name, checks in by_property.items()
            for request, check in checks.items()
        }

    def decided(self, node: str, request: Any, image: MetadataImage, step: Step, now: float) -> None:
        """image: before the step. now: seconds. What is wrong is told by raise_found(): here it would be an error of
        the node."""
        asked = type(request).__name__
        if asked not in self._checks or step.answer is None or self._found is not None:
            return
        name, check = self._checks[asked]
        after = image
        if step.records:
            after = image.copy()
            for offset, record in enumerate(step.records, image.end_offset):
                after.replay(offset, record)
        try:
            check(request, image, after, step)
            self._sessions.decided(node, request, image, step, now)
        except Wrong as wrong:
            self._found = Violated(name, f"{node} decides {asked.removesuffix('Request')}: {wrong}", "", (node,))
        except Exception as error:
            self._found = error

    def raise_found(self) -> None:
        """Raises Violated, or whatever a check has failed with."""
        if self._found is not None:
            raise self._found
