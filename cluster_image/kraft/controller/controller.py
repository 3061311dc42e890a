"""The active controller's state machine: requests and the passing of time become metadata records.

Every method is synchronous. It looks at `image`, which holds everything this leader has written, committed or not,
and returns the records to append and the answer to give once they are committed. The caller (server.py) appends,
replays them here, and lets no answer out before everything that it was computed from is committed (000, 1.2.1).

What is decided is in a module each: brokers (life cycle), topics, partitions (AlterPartition, elections),
reassignments, producer_ids, unclean_recovery.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from random import Random
from typing import Any

from cluster_image.config import Config
from cluster_image.replication.replica import PartitionKey

from ..metadata.image import MetadataImage
from . import configs, partitions, producer_ids, reassignments, topics
from .brokers import Brokers
from .term import Step, Term
from .unclean_recovery import Recovery, UncleanRecovery


class Controller:
    """State of one term of office. A new term starts from the committed image. Times are the loop's, in seconds."""

    def __init__(self, image: MetadataImage, config: Config, cluster_id: str, random: Random, now: float) -> None:
        self.image = image
        self._term = Term(image, config, cluster_id, random)
        self._brokers = Brokers(self._term, now)
        self.unclean_recovery = UncleanRecovery(self._term)
        self._balance_interval: float = config["leader.imbalance.check.interval.seconds"]
        self._balances = config["auto.leader.rebalance.enable"]
        self._next_balance = now + self._balance_interval

    # -- brokers ----------------------------------------------------------------------------------------------

    def session_alive(self, broker: int, now: float) -> bool:
        return self._brokers.session_alive(broker, now)

    def register_broker(self, request: Any, now: float) -> Step:
        return self._brokers.register(request, now)

    def unregister_broker(self, request: Any, now: float) -> Step:
        return self._brokers.unregister(request, now)

    def heartbeat(self, request: Any, now: float) -> Step:
        return self._brokers.heartbeat(request, now)

    def fence_one_expired(self, now: float) -> Step:
        return self._brokers.fence_one_expired(now)

    def allocate_producer_ids(self, request: Any) -> Step:
        return producer_ids.allocate(self._term, request)

    # -- topics and partitions --------------------------------------------------------------------------------

    def create_topics(self, request: Any) -> Iterator[Step]:
        return topics.create(self._term, request)

    def create_partitions(self, request: Any) -> Step:
        return topics.create_partitions(self._term, request)

    def delete_topics(self, request: Any) -> Iterator[Step]:
        return topics.delete(self._term, request)

    def alter_configs(self, request: Any) -> Step:
        return configs.alter(self._term, request)

    def alter_partition(self, request: Any) -> Step:
        return partitions.alter(self._term, request)

    def elect_leaders(self, request: Any, recovered: Collection[PartitionKey] = ()) -> Step:
        return partitions.elect_leaders(self._term, request, recovered)

    def ask_for_recovery(self, request: Any) -> list[PartitionKey]:
        return partitions.ask_for_recovery(self._term, self.unclean_recovery, request)

    def alter_partition_reassignments(self, request: Any) -> Step:
        return reassignments.alter(self._term, request)

    def list_partition_reassignments(self, request: Any) -> Step:
        return reassignments.list_ongoing(self._term, request)

    def recover(self, now: float) -> list[Recovery]:
        """Unclean elections that are due (002, 5.3). Their records are to be written in the same step."""
        self.unclean_recovery.look()
        return self.unclean_recovery.decide(now)

    # -- time -------------------------------------------------------------------------------------------------

    def tick(self, now: float) -> Step:
        """What has become due; to be called again until nothing is. Sessions first: who is gone gets nothing back."""
        step = self.fence_one_expired(now)
        if step.records or not self._balances or now < self._next_balance:
            return step
        step = partitions.elect_preferred_leaders(self._term)
        if len(step.records) < partitions.MAX_PREFERRED_ELECTIONS:
            self._next_balance = now + self._balance_interval
        return step
