"""FetchAnswered: what a broker answers a fetch with, and when.

| a partition that was asked for | must be told
| ------------------------------ | ------------------------------------------------------------------------------------
| that is not here               | why, by an error: of a topic that is gone not that others lead it
| of a leader epoch that it has  | not that the epoch is yet to come (KAFKA-14078): who is told so waits for it, and
| seen pass                      | looks for nobody else
| that the broker leads          | its high watermark, as it is; no error for a leader epoch that has not passed, nor
|                                | for an offset between the log's start and the high watermark
| that it leads no more, or that | as soon as that is so: who waits for news is not kept waiting, unless for more bytes
| has records past the offset    | than one, or by a quota of replication (KIP-73)
| that it leads, by a follower   | OFFSET_OUT_OF_RANGE, with the begin of the leader's log, if that begins elsewhere, or
| that is empty and names no     | the leader knows the epoch of the record before it: nothing shows that the follower
| epoch                          | ever had what lies below its offset (KAFKA-6857)

And an answer that comes before the time to wait is up tells something: an error, or as many bytes as were asked for.
With an error comes no end of an epoch, but where an offset is out of range: there it tells where the log begins.

A process that was paused comes to all that it has missed at once: it is late only if it has answered others meanwhile.

Sources: 000, 2.2.3; Apache Kafka's DelayedFetch and ReplicaManager; KIP-227, KIP-320.
"""

from __future__ import annotations

from bisect import bisect
from collections import deque
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, NamedTuple

from kio.schema.errors import ErrorCode

from checkers.inside.violation import Violated
from cluster_image.kraft.broker.partition import Partition
from cluster_image.kraft.broker.server import BrokerServer
from cluster_image.kraft.node import Node
from cluster_image.kraft.raft import rpc
from cluster_image.replication.replica import PartitionKey

#: Seconds for which something has been so before it counts.
LONG_S: Final = 0.1
#: Seconds by which an answer may be late, and how often others were answered meanwhile, by whom that is. What a process
#: that waits for its disk comes to at once counts once.
_LATE_S: Final = 0.2
_APART_S: Final = 0.05
_AT_ONCE_S: Final = 0.01
_TIMES: Final = 4
_ROUNDING_S: Final = 1e-6

#: Looks at a leader's ends that are kept: longer than anybody waits.
_MOST_ENDS: Final = 40

_NO_SESSION_EPOCHS: Final = (0, -1)
_THROTTLED: Final = "leader.replication.throttled.replicas"
_FOR_WHO_LEADS: Final = (
    ErrorCode.not_leader_or_follower, ErrorCode.fenced_leader_epoch, ErrorCode.unknown_leader_epoch,
)  # fmt: skip
_TELLING_ENDS: Final = (ErrorCode.none, ErrorCode.offset_out_of_range)


class _Asked(NamedTuple):
    """replica: who fetches, -1: a consumer. since, now: seconds."""

    replica: int
    request: Any
    since: float
    now: float


class _Ends(NamedTuple):
    """Of a log, as its leader had it then."""

    now: float
    leader_epoch: int
    end: int
    high_watermark: int


class Fetching:
    """before: the high watermark that a node had LONG_S ago as the leader of a partition, in this leader epoch; -1."""

    def __init__(self, before: Callable[[str, Partition], int]) -> None:
        self._before = before
        self._looked = 0.0
        self._epochs: dict[str, Mapping[PartitionKey, int]] = {}  # by node, the leader epochs of what is there
        self._epochs_before: dict[str, Mapping[PartitionKey, int]] = {}  # LONG_S ago, or longer
        self._topics: dict[str, Collection[Any]] = {}  # by node, ids of those that it knows
        self._topics_before: dict[str, Collection[Any]] = {}
        self._not_led: dict[tuple[str, PartitionKey], float] = {}  # since when
        self._ends: dict[tuple[str, PartitionKey], deque[_Ends]] = {}  # by when
        self._answered: dict[str, list[float]] = {}  # when each node has answered anything

    def node_started(self, name: str) -> None:
        self._answered[name] = []
        for known in (self._epochs, self._epochs_before, self._topics, self._topics_before):
            known.pop(name, None)
        for of_partitions in (self._not_led, self._ends):
            for key in [key for key in of_partitions if key[0] == name]:
                del of_partitions[key]

    def answered(self, name: str, now: float) -> None:
        self._answered.setdefault(name, []).append(now)

    def look(self, nodes: Mapping[str, Node], now: float) -> None:
        """Some ten times a second. now: virtual seconds."""
        if now - self._looked < LONG_S:
            return
        self._looked, self._epochs_before, self._epochs = now, self._epochs, {}
        self._topics_before, self._topics = self._topics, {}
        for name, node in nodes.items():
            if node.broker is None:
                continue
            self._topics[name] = frozenset(node.broker.image.topics_by_id)
            self._epochs[name] = {key: partition.leader_epoch for key, partition in node.broker.partitions.items()}
            for key, partition in node.broker.partitions.items():
                if partition.is_leader:
                    self._not_led.pop((name, key), None)
                    ends = _Ends(now, partition.leader_epoch, partition.log.end_offset, partition.high_watermark)
                    self._ends.setdefault((name, key), deque(maxlen=_MOST_ENDS)).append(ends)
                else:
                    self._not_led.setdefault((name, key), now)

    def check(self, name: str, node: Node, request: Any, response: Any, since: float, now: float) -> None:
        """Of FetchRequest; not of the metadata, which a broker that is a controller, too, answers as such. Raises
        Violated."""
        broker = node.broker
        of_metadata = any(_name(topic) == rpc.TOPIC_ID for topic in request.topics)
        if broker is None or of_metadata or getattr(response, "error_code", ErrorCode.none) is not ErrorCode.none:
            return
        state = getattr(request, "replica_state", request)
        asked = _Asked(int(state.replica_id), request, since, now)
        told = {
            (_name(topic), int(data.partition_index)): data
            for topic in response.responses for data in topic.partitions
        }  # fmt: skip
        named = [(_name(topic), int(data.partition), data) for topic in request.topics for data in topic.partitions]
        for topic, index, data in named:
            self._check_one(name, broker, asked, topic, data, told.get((topic, index)))
        session = broker.fetch_session(int(getattr(request, "session_id", 0)))
        is_whole = getattr(request, "session_epoch", -1) in _NO_SESSION_EPOCHS
        offsets = (
            {(topic, index): int(data.fetch_offset) for topic, index, data in named} if is_whole
            else {} if session is None
            else {key: each.fetch_offset for key, each in session.partitions.by_key.items()}
        )  # fmt: skip
        for topic, index in dict.fromkeys([*((topic, index) for topic, index, _ in named), *offsets]):
            if (key := _key(broker, topic, index)) is None or key not in broker.partitions:
                self._check_told_why(name, broker, asked, key, f"{topic}-{index}", told.get((topic, index)))
        self._check_wait(name, broker, asked, offsets)
        if offsets and int(request.min_bytes) > 0:
            _check_early(name, asked, list(told.values()))

    def _check_one(
        self, name: str, broker: BrokerServer, asked: _Asked, topic: Any, data: Any, told: Any | None
    ) -> None:
        index = int(data.partition)
        key = _key(broker, topic, index)
        partition = None if key is None else broker.partitions.get(key)
        if partition is None:
            return
        where = str(partition)
        if told is not None and told.error_code not in _TELLING_ENDS and _diverges(told):
            raise _violated(name, where, f"it is refused by {told.error_code.name}, and its log is said to diverge")
        if told is None:
            return
        epoch, offset = int(getattr(data, "current_leader_epoch", -1)), int(data.fetch_offset)
        if told.error_code is ErrorCode.unknown_leader_epoch and asked.now - asked.since <= LONG_S:
            passed = self._epochs_before.get(name, {}).get(partition.key, -1)
            if 0 <= epoch < passed:
                raise _violated(name, where, f"leader epoch {epoch} is not known yet, and it knows {passed}")
        if not partition.is_leader:
            return
        known = self._before(name, partition)
        if told.error_code is ErrorCode.none:
            _check_begin(name, where, asked, data, partition)
            watermark = int(told.high_watermark)
            if known >= 0 and not known <= watermark <= partition.high_watermark:
                raise _violated(
                    name, where, f"the watermark was {known} and is {partition.high_watermark}, and {watermark} is told"
                )  # fmt: skip
        elif told.error_code is ErrorCode.fenced_leader_epoch and not 0 <= epoch < partition.leader_epoch:
            raise _violated(name, where, f"leader epoch {epoch} is fenced, and it leads in {partition.leader_epoch}")
        elif (
            told.error_code is ErrorCode.offset_out_of_range and asked.replica < 0
            and partition.log.start_offset <= offset <= known
        ):  # fmt: skip
            raise _violated(
                name, where, f"offset {offset} is refused, and its log starts at {partition.log.start_offset}; the "
                f"high watermark was {known}",
            )  # fmt: skip

    def _check_told_why(
        self, name: str, broker: BrokerServer, asked: _Asked, key: PartitionKey | None, where: str, told: Any | None
    ) -> None:  # fmt: skip
        """Of one that is not here. A topic that it knows of only now is new to it, and not gone."""
        if name not in self._epochs_before or key in self._epochs_before[name]:
            return
        if told is None or told.error_code is ErrorCode.none:
            raise _violated(name, where, f"it is not here, and {'nothing' if told is None else 'no error'} is told")
        known = (broker.image.topics_by_id, self._topics[name], self._topics_before[name])
        is_gone = key is not None and all(key[0] not in topics for topics in known)
        if is_gone and asked.now - asked.since <= LONG_S and told.error_code in _FOR_WHO_LEADS:
            raise _violated(name, where, f"there is no such topic, and {told.error_code.name} is told")

    def _check_wait(
        self, name: str, broker: BrokerServer, asked: _Asked, offsets: Mapping[tuple[Any, int], int]
    ) -> None:
        answered = self._answered.get(name, [])
        if asked.now - asked.since <= _LATE_S:
            return
        for (topic, index), offset in offsets.items():
            key = _key(broker, topic, index)
            partition = None if key is None else broker.partitions.get(key)
            if key is None or partition is None:
                continue
            if partition.is_leader:
                since, why = self._news_since(name, broker, key, asked, offset), f"it had records past {offset}"
            else:
                since, why = self._not_led.get((name, key)), "it led no more"
            if since is None:
                continue
            begin = max(since, asked.since)
            meanwhile = answered[bisect(answered, begin + _APART_S) : bisect(answered, asked.now - _APART_S)]
            if asked.now - begin > _LATE_S and (times := _times(meanwhile)) >= _TIMES:
                raise _violated(
                    name, str(partition), f"who fetches was kept waiting for {asked.now - begin:.3f} s after {why}, "
                    f"and others were answered {times} times meanwhile",
                )  # fmt: skip

    def _news_since(
        self, name: str, broker: BrokerServer, key: PartitionKey, asked: _Asked, offset: int
    ) -> float | None:
        """When it was first seen that there is something to read. None: there is not, or it may have to wait."""
        partition = broker.partitions[key]
        topic = broker.image.topics.get(partition.topic)
        if int(asked.request.min_bytes) > 1 or topic is None or _THROTTLED in topic.settings:
            return None
        for ends in self._ends.get((name, key), ()):
            readable = ends.end if asked.replica >= 0 else ends.high_watermark
            if ends.leader_epoch == partition.leader_epoch and readable > offset:
                return ends.now
        return None


def _check_begin(name: str, where: str, asked: _Asked, data: Any, partition: Partition) -> None:
    """Of a leader that has told no error. Its log may have come to begin above the offset since the fetch was taken."""
    offset, start = int(data.fetch_offset), partition.log.start_offset
    epoch = partition.log.epoch_before(start)
    is_empty = asked.replica >= 0 and int(data.log_start_offset) == offset and int(data.last_fetched_epoch) < 0
    if is_empty and (offset > start or (offset == start and epoch >= 0)):
        known = f", after a record of epoch {epoch}" if epoch >= 0 else ""
        raise _violated(
            name, where, f"the log of broker {asked.replica} is empty at offset {offset}, and it names no epoch; the "
            f"leader's begins at {start}{known}, and it is not told so",
        )  # fmt: skip


def _times(moments: list[float]) -> int:
    """moments: in order. Those at once are one."""
    count, last = 0, float("-inf")
    for each in moments:
        if each - last > _AT_ONCE_S:
            count, last = count + 1, each
    return count


def _check_early(name: str, asked: _Asked, told: list[Any]) -> None:
    request = asked.request
    waits_until = asked.since + request.max_wait.total_seconds()
    if asked.now >= waits_until - _ROUNDING_S or any(_is_urgent(data) for data in told):
        return
    found = sum(len(data.records or b"") for data in told)
    wanted = min(int(request.min_bytes), max(int(getattr(request, "max_bytes", 1 << 31)), 1))
    if found < wanted:
        raise _violated(
            name, "", f"who fetches waits {waits_until - asked.now:.3f} s more for {wanted} bytes, and is told of "
            f"nothing but {found}",
        )  # fmt: skip


def _is_urgent(data: Any) -> bool:
    return data.error_code is not ErrorCode.none or _diverges(data)


def _diverges(data: Any) -> bool:
    diverging = getattr(data, "diverging_epoch", None)
    return diverging is not None and int(diverging.end_offset) >= 0


def _name(topic: Any) -> Any:
    """Its id, or its name before version 13."""
    return topic.topic_id if hasattr(topic, "topic_id") else topic.topic


def _key(broker: BrokerServer, topic: Any, index: int) -> PartitionKey | None:
    if isinstance(topic, str):
        known = broker.image.topics.get(topic)
        return None if known is None else (known.id, index)
    return topic, index


def _violated(name: str, where: str, what: str) -> Violated:
    return Violated("FetchAnswered", f"{name} answers a fetch{f' of {where}' if where else ''}: {what}", where, (name,))
