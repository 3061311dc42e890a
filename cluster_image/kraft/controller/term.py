"""What the parts of an active controller share during one term of office."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from kio.schema.errors import ErrorCode

from cluster_image.config import Config
from cluster_image.network import Entity
from cluster_image.wire.messages import shortened

from ..metadata.image import BrokerRegistration, MetadataImage
from ..metadata.records import MetadataRecord
from . import rules
from .partition_change import Electorate


class Step(NamedTuple):
    """What a request or a timer leads to: records to append, as one batch that is there as a whole or not at all, and
    the answer once they are committed. Some requests take several steps: an answer has the last of them."""

    records: Sequence[MetadataRecord]
    answer: Entity | None = None


class Refused(Exception):
    """One item of a request is answered with this error and message; the request's other items are not affected."""

    def __init__(self, error: ErrorCode, message: str = "") -> None:
        message = shortened(message)
        super().__init__(message or error.name)
        self.error = error
        self.message = message or None


@dataclass(frozen=True, slots=True)
class Term:
    """image: everything that this leader has written, committed or not."""

    image: MetadataImage
    config: Config
    cluster_id: str
    random: Random

    @property
    def elr_enabled(self) -> bool:
        version: int = self.config["eligible.leader.replicas.version"]
        return version > 0

    def electorate(self, changed: BrokerRegistration | None = None, unclean: bool = False) -> Electorate:
        """As the image has it, but for this broker."""
        brokers = self.image.brokers if changed is None else {**self.image.brokers, changed.id: changed}
        return Electorate(
            brokers,
            self.min_insync_replicas,
            self.elr_enabled,
            changed.id if changed is not None and unclean else None,
        )

    def min_insync_replicas(self, topic: str) -> int:
        return rules.min_insync_replicas(self.config, self.image.topics[topic].settings)
