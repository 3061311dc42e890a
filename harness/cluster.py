"""What a runtime offers a run: a Cluster of Nodes that can be started, broken and mended.

A runtime (harness/runtimes/) implements these two protocols; nemeses and workloads know nothing else of it.
Every method that breaks something returns the evidence that it took effect, as a JSON-able dict: a fault
that leaves no trace does not count.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeVar

from harness.errors import HarnessFailure
from harness.errors import RuntimeUnavailable as RuntimeUnavailable
from harness.targets.security import PLAINTEXT, Security

if TYPE_CHECKING:
    from checkers.inside.violation import Violation
    from harness.targets.admin import Admin

T = TypeVar("T")
Evidence = dict[str, Any]
Role = Literal["controller", "broker"]
Pausing = Literal["freezer", "sigstop"]
#: For a controlled shutdown: the controller must have moved all leaderships away.
TERMINATE_PATIENCE_S = 20.0
Link = tuple[str, str]
#: In a link: everybody who is no node.
CLIENTS = "clients"


@dataclass(frozen=True)
class Shape:
    """What packets meet with on a link, one way. 0: not."""

    delay_ms: float = 0.0
    jitter_ms: float = 0.0  # a packet's delay is up to so much longer or shorter than delay_ms
    loss: float = 0.0  # share of the packets, as the next two
    duplicate: float = 0.0
    reorder: float = 0.0  # of those that are not delayed, and so overtake others
    rate_kbit: float = 0.0  # 1000 bits/s; each link has a rate of its own

    @property
    def needs_netem(self) -> bool:
        return bool(self.delay_ms or self.jitter_ms or self.reorder)


#: What a nemesis may need (Nemesis.needs) that not every machine has, and why one wants it.
NEEDS: Final[Mapping[str, str]] = {
    "netem": "delays and reorders packets",
    "faketime": "a clock for each node",
    "io-limit": "limits what a node reads and writes",
    "proxy": "stands between clients and brokers, and tells Kafka's requests apart",
}


class Node(Protocol):
    """One machine of the cluster under test."""

    name: str  # "broker-1", "controller-3": Docker container and host name are made from it
    id: int  # Kafka's node.id at present: brokers 1.., controllers 101..
    own_id: int  # the same, but for a node that is replaced by another
    role: Role
    rack: str  # "rack-1"; a rack is one failure domain
    address: tuple[str, int]  # host and port reachable from the harness
    #: Is it part of the cluster? A spare is not until it joins, nor is one that was taken out.
    member: bool = True
    #: How often it was given the other of the two releases that a target has under --upgrade-to.
    switches: int = 0
    #: Where a node of role broker serves the quorum, if it is a controller as well.
    controller_address: tuple[str, int] | None = None

    @property
    def quorum_address(self) -> tuple[str, int] | None:
        """Where it serves the quorum; None if it is no controller."""
        return self.address if self.role == "controller" else self.controller_address

    async def kill(self) -> Evidence:
        """SIGKILL the process; the page cache survives. Evidence: exit_status, pid."""

    async def terminate(self) -> Evidence:
        """SIGTERM, and wait until the process has ended; SIGKILL if it has not within TERMINATE_PATIENCE_S.
        Evidence: exit_status (None: it did not run), pid, stopping_ns."""

    async def start(self) -> None:
        """Start the process again after kill(), or after it ended by itself."""

    async def pause(self, how: Pausing = "freezer") -> Evidence:
        """Freeze every thread of the node. Evidence: frozen_state."""

    async def resume(self) -> Evidence:
        """Thaw. Evidence: frozen_ns, how long the node stood still; cpu_ns_while_frozen, what its threads ran in that
        time."""

    async def cut_power(self, *, in_write: int = 0, late_s: float = 0.0) -> Evidence:
        """Network off, SIGKILL, file system shut down without flushing its journal, in that order, then
        unmount and mount again (the network stays off and the process down until restore_power()).

        in_write: the number of the operation, of those that change the node's disk from now on, in whose middle the
        power goes; 0: at once. A node too idle for so many loses it a moment later all the same.
        late_s: what the node sends in its last moments stays so many seconds on the network, so that it may arrive
        when the node has long been back with less than it had. Only simulation can do these two; elsewhere the cut
        comes at once and lands where it lands.

        Evidence: unsynced_bytes, unsynced_files, unsynced_records (lost, by comparing before and after),
        lost_by_partition {"topic-0": records}, lost_offsets {"topic-0": [[first, end (exclusive), leader epoch], …]},
        cut_ns (request to remounted), exit_status."""

    async def lose_page_cache(self) -> Evidence:
        """SIGKILL, and what the page cache held of the node's files and had not been written is gone; the machine lives
        on: its network tells others that the connections have ended. start() mends it. Evidence: as of cut_power(), but
        for cut_ns."""

    async def restore_power(self) -> None:
        """Network on and process started: the node boots from what its disk kept."""

    async def is_running(self) -> bool: ...

    async def last_words(self) -> str:
        """The end of its log, where that can be read at any time."""
        return ""

    # What not every runtime offers (Nemesis.runtimes): one that does not derives its nodes from this class.

    async def replace(self, node_id: int) -> None:
        """Of a broker whose process does not run: another takes its place, at its address, with this node.id and an
        empty disk, once it is started. The disk that it had is put aside, as it is."""
        raise NotOffered("replace")

    async def put_back(self) -> None:
        """The broker itself again, on its own disk, once it is started; the other's disk is thrown away. No process may
        run of the other one. Safe to repeat."""
        raise NotOffered("put_back")

    async def switch_release(self) -> Evidence:
        """Of a node whose process does not run: the other of the target's two releases is what is started from now on,
        on the same disk. Evidence: software, "next" or "first"."""
        raise NotOffered("switch_release")

    async def set_clock(self, offset_s: float, drift: float = 0.0) -> Evidence:
        """The wall clock jumps to `offset_s` seconds ahead of the true time (behind it, if negative) and gains `drift`
        seconds a second from now on; 0 sets it right. It is the machine's: it goes on like that whatever becomes of its
        process and its power. Monotonic time goes on as if nothing were. Safe to repeat. Needs "faketime".

        Evidence, as measured on the node, if its process runs: clock_offset_ms, from now on; clock_drifted_ms, what a
        clock has gained that drifted until now, and clock_drifting_ms, in what time."""
        raise NotOffered("set_clock")

    async def fill_disk(self) -> Evidence:
        """No room is left: writes are refused (ENOSPC). A process that is refused one ends by itself, as Kafka's does
        that loses its last log directory; the page cache survives it."""
        raise NotOffered("fill_disk")

    async def free_disk(self) -> Evidence:
        """Room again. If a write was refused, returns once the process has ended. Safe to repeat.
        Evidence: refused_writes, since fill_disk(); exit_status, if that ended the process."""
        raise NotOffered("free_disk")

    async def fail_disk(self) -> Evidence:
        """Reads, writes and syncs fail (EIO), which the process does not outlive. As in Linux, what a failed sync was
        to save is lost though reads may still have shown it."""
        raise NotOffered("fail_disk")

    async def repair_disk(self) -> Evidence:
        """No more errors. If there was one, returns once the process has ended. Safe to repeat.
        Evidence: failed_operations, since fail_disk(); exit_status, if that ended the process; unsynced_bytes,
        unsynced_files and unsynced_records as of cut_power(), only if something was lost."""
        raise NotOffered("repair_disk")

    async def lose_files(self, what: str, which: float) -> Evidence:
        """Of a node whose process does not run: its disk is empty from now on ("disk"), or lacks the directory of one
        partition ("log"), the one at `which` in [0, 1). Evidence: as of cut_power(), of all that is gone, synced or
        not; lost_at, on the run's clock, in ns."""
        raise NotOffered("lose_files")

    async def snapshot_disk(self) -> None:
        """Keep a copy of what the disk holds; of what a process writes, what a power cut at this moment leaves."""
        raise NotOffered("snapshot_disk")

    async def restore_disk(self) -> Evidence:
        """Of a node whose process does not run: the copy is what its disk holds from now on. Evidence: as of
        lose_files()."""
        raise NotOffered("restore_disk")

    async def strike_operation(
        self, choice: Mapping[str, Any], within_s: float, *, starting: bool = False
    ) -> Evidence:
        """Waits for one operation of the process on its disk, at most so long, and strikes in it. starting: the process
        is started for it, and waited for only until it has loaded what its disk holds.

        choice: what strikes; operation: which one, of those that it may strike, counted from now on, from 1 (0: none,
        they are only counted). what is "power" or "kill", just before any change or sync, or in the middle of a write;
        "error", "read" or "write": a read, a write or either of them fails (EIO); "short-write": half of a write is
        written, and then there is an error ("EIO" or "ENOSPC"); "fsync": a sync fails (EIO), after which the pages
        that it was to write are still to be written ("kept"), are taken for clean ("dropped"), or are so and read no
        more once the process has ended ("evicted").

        Evidence: counted_operations; struck {operation, path, number}, if one was; as of kill() or cut_power(); of what
        fails failed_operations, exit_status if that ended the process, and as of repair_disk(). lost_at, on the run's
        clock, in ns: when it struck."""
        raise NotOffered("strike_operation")

    async def drop_clean_pages(self) -> Evidence:
        """What the page cache holds of the node's files and has been written is dropped, under a live process: the next
        read of it goes to the disk. Nothing is lost. Evidence, in bytes: resident_before, resident_after,
        dropped_bytes."""
        raise NotOffered("drop_clean_pages")

    async def slow_disk(self, bytes_per_s: int, operations_per_s: int) -> Evidence:
        """Reads and writes of the node's process take their time, each at most so much, until hasten_disk(): also those
        of a process that is started meanwhile. Needs "io-limit". Evidence: write_ms_before and write_ms_while, of a
        small synced write under the same conditions, where that can be tried."""
        raise NotOffered("slow_disk")

    async def hasten_disk(self) -> Evidence:
        """As fast as ever. Safe to repeat. Evidence: slowed_syncs and slowed_ms, where they can be counted."""
        raise NotOffered("hasten_disk")

    async def make_disk_read_only(self) -> Evidence:
        """What was written is synced; from then on writes are refused (EROFS), as when Linux remounts a file system
        on which it found an error. Under a live process if the file system can, else the process is killed and started
        again. Nothing is lost. Evidence: write_error, the name of the error that a write gets."""
        raise NotOffered("make_disk_read_only")

    async def make_disk_writable(self) -> Evidence:
        """Mounted anew, to be written. If a write was refused, returns once the process has ended. Safe to repeat.
        Evidence: refused_writes, since make_disk_read_only(); exit_status, if that ended the process."""
        raise NotOffered("make_disk_writable")

    async def damage_file(self, choice: Mapping[str, Any]) -> Evidence:
        """The process is killed, and a file damaged that it does not append to any more, for start() to find it so.
        choice: what (a list, the first of which there is a file: "segment", a closed one; "index", of a closed segment;
        "checkpoint"), how ("flip": one bit, "truncate"), and which, where and bit in [0, 1).

        Evidence: file, position, before and after (hex), damaged_bytes; truncated_bytes; damaged_by_partition
        {"topic-0": bytes}, of a segment; exit_status. Without such a file nothing
        is done, and the evidence is nothing_to_damage, a clause."""
        raise NotOffered("damage_file")

    async def restore_file(self) -> Evidence:
        """What damage_file() took is put back, if the file is as it left it. Safe to repeat. Evidence: restored_bytes;
        mended_by_node, whether the file was not as it left it."""
        raise NotOffered("restore_file")


class Cluster(Protocol):
    """A started cluster. `machines` is in id order, controllers last. With combined nodes the first brokers are the
    controllers, and there are no others."""

    #: Members of the cluster, and others: spares that have not joined, and those that were taken out.
    machines: Sequence[Node]
    #: Done once the cluster is stopped for good because a property of the protocol does not hold. Only simulation does
    #: that, which knows all nodes from within; None elsewhere.
    violated: asyncio.Future[Violation] | None = None
    #: Was it there before the run, with topics of others? (It is then looked at before anything is asked of it.)
    was_there: bool = False
    #: Beside its own, with which a workload makes its topic: where the cluster's defaults are not the run's.
    topic_settings: Mapping[str, str] = {}
    #: Of NEEDS what there is not, each with the reason, as a clause: "this kernel has no netem".
    lacks: Mapping[str, str] = {}
    #: How clients reach its brokers, with the secrets that it takes.
    security: Security = PLAINTEXT
    #: Why the last connection of ours to a broker was refused, by who we said to be or by who answered; "": it was not.
    refused: str = ""

    @property
    def admin(self) -> Admin:
        """An operator's word to it, the same for the whole run."""
        raise NotOffered("admin")

    @property
    def nodes(self) -> Sequence[Node]:
        """The members: those that are to run when no fault is in force."""
        return [node for node in self.machines if node.member]

    @property
    def brokers(self) -> Sequence[Node]:
        return [node for node in self.nodes if node.role == "broker"]

    @property
    def controllers(self) -> Sequence[Node]:
        return [node for node in self.nodes if node.quorum_address]

    @property
    def bootstrap(self) -> Sequence[tuple[str, int]]:
        """Where clients reach the brokers, to begin with."""
        return [node.address for node in self.brokers]

    async def block(self, key: str, links: Sequence[Link]) -> None:
        """From now on let nothing pass these links, (from whom, to whom) each, by name. Adds to what other keys block;
        the same key again replaces what it blocked. Stays in force on a node that is killed or loses its power."""

    async def unblock(self, key: str) -> Evidence:
        """What this key blocked passes again. Safe to repeat. Evidence, by the rules' own counters: packets_dropped,
        and packets_dropped_by_link {"broker-1 > broker-2": packets}."""

    async def shape(self, key: str, links: Sequence[Link], shape: Shape) -> Evidence:
        """From now on these links do that to what passes them. Adds to what other keys do, and stays in force, as
        block(). Raises NotAvailable. Evidence, as far as it can be measured: round_trip_ms {"before", "while"}, the
        median over the links, the same for both; or unanswered_ms, if there was no answer for so long, which under this
        shape may take longer; packets_reordered, those seen to overtake others."""
        ...

    async def unshape(self, key: str) -> Evidence:
        """These links are again as they were before this key. Safe to repeat. Evidence, of what there was:
        packets_dropped and packets_dropped_by_link, as of unblock(); packets_delayed, packets_duplicated and
        packets_reordered (let ahead of those that are late, if any waited at that moment); throttled, how often packets
        had to wait for their turn at the rate, and shaped_bytes, what passed at it; round_trip_ms or unanswered_ms, as
        of shape(), a moment before."""
        ...

    async def hold_requests(
        self, key: str, api: str, action: Literal["delay", "repeat"], seconds: tuple[float, float], share: float,
        random: Random,
    ) -> Evidence:  # fmt: skip
        """From now on this share of the clients' requests of that API (Kafka's name of it) is held back for so long, or
        arrives once more after so long. Adds to what other keys do. Needs "proxy"."""
        raise NotOffered("hold_requests")

    async def release_requests(self, key: str) -> Evidence:
        """Requests pass again; what is held back arrives in its time. Safe to repeat. Evidence: api; requests, of it
        that there were meanwhile; delayed_requests or repeated_requests; held_ms, all of them together;
        delivered_after_hang_up, those whose client had hung up by then."""
        raise NotOffered("release_requests")

    async def heal(self) -> None:
        """Whatever may still be blocked passes again, and every link is as it was."""

    async def leftovers(self) -> Sequence[str]:
        """What is still broken, looked up where it would show (rules, queues, mounts, frozen processes, clocks) and not
        in what was noted: a clause each, "broker-1 has rules that drop packets". Raises if it cannot be looked up."""
        return ()

    def facts(self) -> Mapping[str, Any]:
        """What there is to say of the run beside evidence of faults, for run.json."""
        return {}

    def unsettled(self) -> str | None:
        """What those who know the nodes from within still see amiss after all faults were healed, as a clause."""
        return None

    def not_recovered(self, reason: str) -> None:
        """The cluster was given all the time that it may need to recover, and did not."""
        return None

    async def gather(self, directory: Path) -> None:
        """What nodes have told of themselves so far (trace/<node>.jsonl), into this folder, where it is not there."""
        return None

    async def collect(self, directory: Path) -> Mapping[str, str] | None:
        """After the run: each node's log to directory/logs/<node>.log, each broker's data directory
        (segments and checkpoints) to directory/disks/<node>/. Nodes may be running or dead. Returns, by node, what of
        its disk is not there and why, as a sentence; whatever else can be copied is."""

    async def stop(self) -> None:
        """Remove every container, network, mount and loop device of this run. Safe to call twice."""


class Runtime(Protocol):
    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run `main` to its end, on this runtime's kind of event loop."""

    async def lacks(self, needs: Collection[str]) -> Mapping[str, str]:
        """Of these NEEDS what there is not here, found out by trying and without a cluster; as Cluster.lacks. Raises
        RuntimeUnavailable."""
        return {}

    async def start(self, plan: Any, run_directory: Path, progress: Any, *, needs: Collection[str] = ()) -> Cluster:
        """Bring up plan's cluster. Returns as soon as the containers run; the caller waits for readiness.
        progress: Callable[[str], None], one line about a slow step. needs: of NEEDS what some fault will ask for; what
        there is not is in Cluster.lacks. Raises RuntimeUnavailable."""


class NotOffered(Exception):
    """This runtime cannot do that to a node. Nobody should have asked: a nemesis names its runtimes."""


class ClusterLost(HarnessFailure):
    """What breaks the nodes and mends them is gone: nothing more can be injected or healed. A sentence that says what
    to do."""


class NotAvailable(HarnessFailure):
    """This machine lacks what that needs (Cluster.lacks). The message is "not available here: " and the reason."""
