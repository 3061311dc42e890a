"""FetchedFromLeader: a replica that follows is fetched from the leader that it knows of, and from nobody else; what is
no replica of a broker it does not fetch.

Source: 000, 2.2.3; Apache Kafka's AbstractFetcherManager.
"""

from __future__ import annotations

from checkers.inside.violation import Violated
from cluster_image.kraft.broker.server import BrokerServer


def check_fetched(name: str, broker: BrokerServer) -> None:
    """Raises Violated."""
    fetched: dict[int, list[int]] = {}  # leaders, by the identity of a replica
    for leader, replica in broker.fetched:
        fetched.setdefault(id(replica), []).append(leader)
        if broker.partitions.get(replica.key) is not replica:
            raise _violated(name, str(replica), f"fetches it from broker {leader}, and has no such replica")
    for partition in broker.partitions.values():
        due = [] if partition.is_leader or partition.leader < 0 else [partition.leader]
        leaders = fetched.get(id(partition), [])
        if leaders != due:
            where, of = f"{partition}", f"in leader epoch {partition.leader_epoch} of broker {partition.leader}"
            raise _violated(name, where, f"fetches it {of} from brokers {leaders}, and should from {due}")


def _violated(name: str, where: str, message: str) -> Violated:
    return Violated("FetchedFromLeader", f"{name} {message}", where, (name,))
