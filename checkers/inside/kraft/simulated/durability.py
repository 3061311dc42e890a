"""Whether what nodes take to be durable, and tell others to be, is what a power cut at this moment would leave.

Nothing of this shows in a run before the power goes at the one moment in which it matters, and then as something else:
a record lost, a vote cast twice. Here each claim is compared with the simulated disk as soon as it is made.

| property                | the claim                                               | checked when
| ----------------------- | ------------------------------------------------------- | ----------------
| FlushedOffset           | below a log's flushed offset everything is on the disk; | the log changes;
|                         | by it voters and leaders of the quorum count            | now and then
| VoterEndOffset          | a voter's disk has what the quorum's leader counts it   | the node
|                         | for                                                     | changes
| QuorumState             | a voter's epoch and vote are on its disk                | the node changes
| RecoveryPointCheckpoint | up to what recovery-point-offset-checkpoint says a log  | now and then,
|                         | is on the disk                                          | if it is new
| CleanShutdown           | if there is a clean-shutdown file all of each log is on | now and then; at
|                         | the disk; who registers as shut down cleanly was so, in | the end of a
|                         | that session, and has lost nothing since that it could  | process
|                         | know of                                                 |

Sources: KAFKA-10533 (flushed offset, votes); 002, 5.1 (recovery point), 5.1.1 and 5.2 (clean shutdown).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from typing import Final, Protocol

from checkers.inside.violation import Violated
from cluster_image.kraft.node import METADATA_DIRECTORY, Node
from cluster_image.kraft.raft.state import FILE_NAME, ElectionState, state_in
from cluster_image.storage.checkpoints import CLEAN_SHUTDOWN_FILE, RECOVERY_POINT_FILE, clean_epoch_in, offsets_in
from cluster_image.storage.log import Log

_QUORUM_STATE: Final = f"{METADATA_DIRECTORY}/{FILE_NAME}"


class Disk(Protocol):
    """Paths are relative to its root."""

    @property
    def damaged(self) -> bool:
        """Is a bit of some record another, which no process finds before it reads that record?"""
        ...

    @property
    def deceptive(self) -> bool:
        """Is something wrong with it that no process can know at its start? It is an older copy, with the proof of an
        older clean shutdown, or a bit is another."""
        ...

    @property
    def altered(self) -> bool:
        """Has something other than a process changed files, since the last process began?"""
        ...

    def synced_size(self, path: str) -> int:
        """Up to which byte a power cut at this moment leaves the file as it is read; -1: it may leave none."""
        ...

    def synced(self, path: str) -> bytes | None:
        """What it leaves of a file that is not being changed; None: there may be none."""
        ...

    def files(self) -> Mapping[str, bytes | bytearray]:
        """All, as they are read."""
        ...

    def directories(self) -> Collection[str]:
        """Names of those at its root."""
        ...

    @property
    def misleading(self) -> bool:
        """Are there files of which a reader sees what a failed sync has not written?"""
        ...

    def open_files(self) -> Collection[str]:
        """That the process which runs on it has open; one that is open twice is there twice."""
        ...


class DurabilityOracle:
    """Methods may raise Violated."""

    def __init__(self) -> None:
        self._disks: dict[str, Disk] = {}
        # It is asked of the same bytes after each step of the quorum's. Kept for one run: the next one's code may be
        # another, of a bug or a mutant.
        self._state_in = lru_cache(maxsize=256)(state_in)
        self._flushed: dict[tuple[str, str], int] = {}  # by node and directory of a log, when it was looked at last
        self._recovery_points: dict[str, bytes | None] = {}  # the file's content then
        self._truncated: dict[tuple[str, str], None] = {}  # since then
        self._lost: dict[str, None] = {}  # nodes whose disks have lost something since their last process began
        self._clean_epochs: dict[str, int] = {}  # of the session before, if it ended cleanly and nothing was lost; -1
        self._unaltered: dict[str, bool] = {}  # nodes whose disks are as the session before has left them

    def node_started(self, name: str, disk: Disk) -> None:
        """Its process begins on this disk, before anything of it has run."""
        left = disk.synced(CLEAN_SHUTDOWN_FILE)
        believed = left is not None and (name not in self._lost or disk.deceptive)
        epoch = clean_epoch_in(left) if believed and left is not None else None
        self._disks[name] = disk
        self._clean_epochs[name] = -1 if epoch is None else epoch
        self._unaltered[name] = not disk.altered
        self._lost.pop(name, None)
        self._recovery_points[name] = disk.synced(RECOVERY_POINT_FILE)
        for known in [key for key in self._flushed if key[0] == name]:
            del self._flushed[known]

    def node_gone(self, name: str, *, lossy: bool) -> None:
        if lossy:
            self._lost[name] = None
        elif name in self._disks:
            self._check_clean_shutdown(name)

    def truncated(self, name: str, where: str) -> None:
        """A log of that node, in the directory `where`."""
        self._truncated[name, where] = None

    def look(self, name: str, log: Log, verify: bool = False) -> None:
        """At one of its logs."""
        offset, key = log.flushed_offset, (name, log.directory)
        if name not in self._disks or (offset == self._flushed.get(key) and not verify):
            return
        self._flushed[key] = offset
        if lacking := self._not_synced(name, log, offset):
            raise Violated(
                "FlushedOffset", f"{name} takes its log {log.directory} for durable up to offset {offset}: {lacking}",
                where=log.directory, nodes=[name],
            )  # fmt: skip

    def look_at_quorum(self, name: str, node: Node, others: Mapping[str, Node]) -> None:
        """At what it has told of elections, and, if it leads the quorum, at what others have told it."""
        quorum = node.raft.quorum
        if quorum is None or name not in self._disks or not quorum.is_voter:
            return
        state, content = quorum.state, self._disks[name].synced(_QUORUM_STATE)
        stored = ElectionState() if content is None else self._state_in(content)
        if stored is None or (stored.epoch, stored.voted_for) != (state.epoch, state.voted_for):
            raise Violated(
                "QuorumState",
                f"{name} is in epoch {state.epoch} of the metadata quorum and has voted for {state.voted_for}; its "
                f"disk has {stored or 'a damaged file'}",
                nodes=[name],
            )
        if quorum.leadership is None:
            return
        by_id = {other.raft.node_id: other_name for other_name, other in others.items()}
        for voter, end in quorum.leadership.acknowledged_ends.items():
            theirs = others[by_id[voter]].raft.quorum if voter in by_id else None
            if theirs is None or theirs.replica.log.end_offset < end or by_id[voter] not in self._disks:
                continue  # it has no process, or a shorter log by now
            if lacking := self._not_synced(by_id[voter], theirs.replica.log, end):
                raise Violated(
                    "VoterEndOffset", f"{name} counts {by_id[voter]} for having the metadata up to {end}: {lacking}",
                    nodes=[name, by_id[voter]],
                )  # fmt: skip

    def look_at_files(self, name: str, node: Node) -> None:
        """At what it has written about itself, and has registered with."""
        disk, broker = self._disks.get(name), node.broker
        if disk is None or broker is None:
            return
        claimed = broker.previous_epoch
        if claimed not in (-1, self._clean_epochs[name]):
            raise Violated(
                "CleanShutdown",
                f"{name} says that its session of epoch {claimed} ended in a clean shutdown; its disk says so of "
                f"{self._clean_epochs[name]} (-1: of none)",
                nodes=[name],
            )
        ended = self._clean_epochs[name]
        if broker.lifecycle is not None and claimed == -1 < ended and self._unaltered[name]:
            raise Violated(
                "CleanShutdown",
                f"{name} says that its last session ended in no clean shutdown; its disk, which has lost nothing, says "
                f"so of epoch {ended}",
                nodes=[name],
            )
        logs = [partition.log for partition in broker.partitions.values()]
        self._check_recovery_points(name, disk, logs)
        self._check_clean_shutdown(name)

    def _check_recovery_points(self, name: str, disk: Disk, logs: Iterable[Log]) -> None:
        content = disk.synced(RECOVERY_POINT_FILE)
        if content == self._recovery_points.get(name):
            return
        self._recovery_points[name] = content
        offsets = {f"{topic}-{index}": offset for (topic, index), offset in (offsets_in(content or b"") or {}).items()}
        for log in logs:
            offset = offsets.get(log.directory, 0)
            if (name, log.directory) in self._truncated:
                continue  # it may have been right
            beyond = f"that log ends at {log.end_offset}" if offset > log.end_offset else ""
            if lacking := beyond or self._not_synced(name, log, offset):
                raise Violated(
                    "RecoveryPointCheckpoint", f"{RECOVERY_POINT_FILE} of {name} has {offset} for {log.directory}: "
                    f"{lacking}", where=log.directory, nodes=[name],
                )  # fmt: skip
        for key in [key for key in self._truncated if key[0] == name]:
            del self._truncated[key]

    def _check_clean_shutdown(self, name: str) -> None:
        disk = self._disks[name]
        if disk.synced_size(CLEAN_SHUTDOWN_FILE) < 0:
            return
        for path, content in disk.files().items():
            directory = path.rpartition("/")[0]
            if not directory or directory == METADATA_DIRECTORY or not path.endswith(".log"):
                continue
            if (synced := disk.synced_size(path)) < len(content):
                raise Violated(
                    "CleanShutdown",
                    f"{name} has {CLEAN_SHUTDOWN_FILE} on its disk, and of the {len(content)} bytes of {path} "
                    f"{max(synced, 0)}",
                    where=directory, nodes=[name],
                )  # fmt: skip

    def _not_synced(self, name: str, log: Log, offset: int) -> str:
        """What of its records below `offset` is not on its disk, as a clause."""
        for path, size in log.files_below(offset):
            if (synced := self._disks[name].synced_size(path)) < size:
                return f"its disk has {max(synced, 0)} of the {size} bytes of {path} that this takes"
        return ""
