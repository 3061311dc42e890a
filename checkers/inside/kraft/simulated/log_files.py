"""What a node makes of the files of its logs: what it finds in them when it opens them, and what it keeps open.

| property  | statement                                                                             | checked
| --------- | ------------------------------------------------------------------------------------- | ------------------
| OpenedLog | a log that is opened ends where the last batch ends that is whole and follows on the  | once, a second
|           | one before: nothing that is right is thrown away, nothing that is wrong is kept;      | after the process
|           | where it begins, the leader epoch of the record before is known if the disk tells it; | began, at most
|           | who has no proof of a clean shutdown believes no more than its recovery point         |
| LogFiles  | each segment of a log is open once, and no other is; none but the newest is empty     | once a second

Of a disk with bits that are others, or whose failed syncs have left what is not there, nothing is asked: what is found
then depends on how far the files are believed.

LeaderEpochCheckpoint is asked here, too: what a node knows of the leader epochs in a log is what the log's batches say.
By it logs are compared and cut (KIP-101, KIP-279): who has an epoch begin elsewhere cuts off what it should keep, or
keeps what it should cut off, as Apache Kafka has done (KAFKA-10706, and docs/findings.md). Of an epoch whose begin is
deleted only the end is asked; of one in which nothing was written, nothing.

Sources: 002, 5.1; Apache Kafka's LogLoader and LogSegment.recover; a process has file descriptors as long as it closes
what it has no use for.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from checkers.inside.violation import Violated
from cluster_image.kraft.node import METADATA_DIRECTORY, Node
from cluster_image.kraft.raft.snapshots import snapshot_of
from cluster_image.storage.checkpoints import (
    CLEAN_SHUTDOWN_FILE,
    LEADER_EPOCH_FILE,
    LOG_START_FILE,
    RECOVERY_POINT_FILE,
    entries_of,
    offsets_in,
)
from cluster_image.storage.log import CREATED, MAX_OFFSET, Log
from cluster_image.storage.records import (
    HEADER_SIZE,
    BatchHeader,
    CorruptRecord,
    InvalidRecord,
    parse_header,
    validate_batch,
)
from cluster_image.storage.segment import LOG_SUFFIX, base_offset_of

from .durability import Disk

_DELETED: Final = "-delete"


class _Begin(NamedTuple):
    """Where a log is to begin, and the leader epoch of the record before; -1: not known."""

    offset: int
    epoch: int = -1


class _Expected(NamedTuple):
    """epoch_before: of the record before `start`; -1: the disk does not tell. believed: the highest offset from which
    on everything has to be proven, without a clean shutdown."""

    start: int
    end: int
    epoch_before: int
    believed: int


class LogFilesOracle:
    """Methods may raise Violated."""

    def __init__(self) -> None:
        self._disks: dict[str, Disk] = {}
        self._expected: dict[str, Mapping[str, _Expected]] = {}  # by node and directory, of logs not looked at yet

    def node_started(self, name: str, disk: Disk) -> None:
        """Its process begins on this disk, before anything of it has run."""
        self._disks[name] = disk
        self._expected[name] = {} if disk.damaged or disk.misleading else dict(_expected(disk.files()))

    def node_gone(self, name: str) -> None:
        self._expected.pop(name, None)

    def look(self, name: str, node: Node) -> None:
        """Now and then, at all that the process has."""
        broker, quorum = node.broker, node.raft.quorum
        if name not in self._disks or (broker is not None and not broker.has_loaded):
            return
        if quorum is None:
            return  # it has left the quorum, and its process ends
        logs = [quorum.replica.log]
        if broker is not None:
            logs += [each for each in broker.opened if not each.is_untouched]
        self._check_files(name, logs)
        expected = self._expected.pop(name, {})
        is_clean = broker is not None and broker.previous_epoch != -1
        for log in logs:
            if log.directory in expected and log.recovery is not CREATED:
                of_metadata = log.directory == METADATA_DIRECTORY
                _check_opened(name, log, expected[log.directory], is_clean and not of_metadata)

    def _check_files(self, name: str, logs: Iterable[Log]) -> None:
        open_ = Counter(path for path in self._disks[name].open_files() if path.endswith(LOG_SUFFIX))
        for log in logs:
            segments = log.files_below(MAX_OFFSET)
            for path, size in segments:
                times = open_.pop(path, 0)
                if log.is_given_up:
                    continue  # it is closed, or nothing of it works
                if times != 1:
                    raise _violated("LogFiles", name, log.directory, f"has {path} open {times} times")
                if not size and path != segments[-1][0]:
                    raise _violated("LogFiles", name, log.directory, f"keeps {path}, which is empty, before others")
        if open_:
            path = next(iter(open_))
            raise _violated("LogFiles", name, path.rpartition("/")[0], f"has {path} open, which is of none of its logs")


def _check_opened(name: str, log: Log, expected: _Expected, is_clean: bool) -> None:
    """is_clean: it says that its last session ended in a clean shutdown, and believes what that left."""
    found = log.recovery
    if found.end_offset != expected.end:
        raise _violated(
            "OpenedLog", name, log.directory, f"opens its log, which ends at {found.end_offset} then; what its disk "
            f"has that is whole and goes on from {expected.start} ends at {expected.end}",
        )  # fmt: skip
    if expected.epoch_before not in (-1, found.epoch_before):
        raise _violated(
            "OpenedLog", name, log.directory, f"opens its log, which begins at {expected.start} after a record of "
            f"epoch {expected.epoch_before}, and takes {found.epoch_before} for its epoch (-1: not known)",
        )  # fmt: skip
    if not is_clean and found.validated_from > expected.believed:
        raise _violated(
            "OpenedLog", name, log.directory, f"opens its log after no clean shutdown, and believes what is below "
            f"{found.validated_from}; its disk says that it was durable below {expected.believed}",
        )  # fmt: skip


def check_epochs(node: str, where: str, log: Log, batches: Iterable[tuple[int, int]]) -> None:
    """batches: of all that the log holds, leader epoch and end. Raises Violated."""
    for epoch, end in dict(batches).items():  # of each epoch the last end: a log has its epochs in their order
        told = log.epoch_before(end), log.end_offset_for_epoch(epoch)
        if told != (epoch, (epoch, end)):
            raise Violated(
                "LeaderEpochCheckpoint",
                f"{node} takes the record before offset {end} for one of leader epoch {told[0]}, and epoch "
                f"{told[1][0]} to end at {told[1][1]}; in its log epoch {epoch} ends there",
                where,
                (node,),
            )


def _expected(files: Mapping[str, bytes | bytearray]) -> Iterator[tuple[str, _Expected]]:
    """By directory."""
    starts, points = ({
        f"{topic}-{index}": offset for (topic, index), offset in (offsets_in(bytes(files.get(path, b""))) or {}).items()
    } for path in (LOG_START_FILE, RECOVERY_POINT_FILE))  # fmt: skip
    if CLEAN_SHUTDOWN_FILE in files:
        points = {}  # of who does not believe that, as the disk has lost something, nothing is believed
    segments: dict[str, dict[int, bytes]] = {}
    for path, content in files.items():
        directory, _, name = path.rpartition("/")
        base = base_offset_of(name)
        if base is not None and not directory.endswith(_DELETED):
            segments.setdefault(directory, {})[base] = bytes(content)
    for directory, found in segments.items():
        if directory == METADATA_DIRECTORY:
            snapshots = (snapshot_of(path.removeprefix(f"{METADATA_DIRECTORY}/")) for path in files)
            begin = _Begin(*min((each for each in snapshots if each is not None), default=(0, -1)))
        else:
            begin = _Begin(starts.get(directory, 0))
        epochs = _noted_epochs(files.get(f"{directory}/{LEADER_EPOCH_FILE}"))
        yield directory, _found(dict(sorted(found.items())), begin, epochs, points.get(directory, 0))


def _found(segments: Mapping[int, bytes], begin: _Begin, epochs: Sequence[tuple[int, int]], point: int) -> _Expected:
    """segments: by base offset, in order. epochs: start offset and epoch, in order, as leader-epoch-checkpoint has
    them. point: the recovery point, as its file has it."""
    bases = list(segments)
    bases = bases[max(bisect_right(bases, begin.offset) - 1, 0) :]
    start, believed = max(begin.offset, bases[0]), min(point, bases[-1])
    end, last_epoch, before = bases[0], -1, begin.epoch if bases[0] == begin.offset else -1
    first_epoch: int | None = None
    for base in bases:
        if base != end:
            break
        for header in _batches(segments[base], base, last_epoch):
            end, last_epoch = header.next_offset, header.leader_epoch
            first_epoch = last_epoch if first_epoch is None else first_epoch
            if header.base_offset < start:
                before = last_epoch
    if end < start or (begin.epoch >= 0 and bases[0] <= begin.offset and before != begin.epoch):
        return _Expected(start, start, begin.epoch, believed)  # it begins anew
    if begin.epoch < 0 and start == bases[0]:
        noted = next((epoch for at, epoch in reversed(epochs) if at < start), -1)
        before = -1 if first_epoch is not None and first_epoch < noted else noted
    return _Expected(start, end, before, believed)


def _batches(content: bytes, base: int, last_epoch: int) -> Iterator[BatchHeader]:
    """Of a segment, as far as they are whole and follow one on the other."""
    position, end = 0, base
    while position + HEADER_SIZE <= len(content):
        header = parse_header(content, position)
        if header.size < HEADER_SIZE or position + header.size > len(content):
            return
        if header.base_offset != end or header.leader_epoch < max(last_epoch, 0):
            return
        try:
            validate_batch(content, position, header)
        except (CorruptRecord, InvalidRecord):
            return
        yield header
        position, end, last_epoch = position + header.size, header.next_offset, header.leader_epoch


def _noted_epochs(content: bytes | bytearray | None) -> list[tuple[int, int]]:
    """Start offset and epoch of each line of a leader-epoch-checkpoint, in order; nothing of what cannot be read."""
    try:
        lines = [] if content is None else entries_of(bytes(content))
        return [(int(start), int(epoch)) for epoch, start in map(str.split, lines)]
    except ValueError:
        return []


def _violated(property_: str, name: str, directory: str, what: str) -> Violated:
    return Violated(property_, f"{name} {what}", directory, (name,))
