"""Target `recovery`: a broker's data directory after any damage.

Loading it raises nothing but OSError or QuorumStateError. What a log holds afterwards was written, is where it was
written, and has no holes; what lay before the first damage is all there. A second load changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from random import Random
from uuid import UUID

from cluster_image.config import Config, parse
from cluster_image.kraft.raft.snapshots import SnapshotId, open_log, trim
from cluster_image.kraft.raft.snapshots import encode as encode_snapshot
from cluster_image.kraft.raft.state import ElectionState, QuorumStateError, QuorumStateStore
from cluster_image.replication.log_manager import LogManager
from cluster_image.storage import Log, LogConfig
from cluster_image.storage.records import encode_int64s, iter_batches
from cluster_image.storage.segment import base_offset_of, segment_name
from harness.runtimes.simulation.disk.disk import SimulatedDisk
from tests.cluster_image.storage.simulated_disk import simulated_disk

from .dice import Dice
from .target import Finding, Target, only

_TOPICS = (("t", 0), ("u-v", 1))
_TOPIC_ID = UUID(int=77)
_METADATA = "__cluster_metadata-0"
_EPOCH = slice(12, 16)  # of a batch; the CRC does not cover it

Files = dict[str, bytes]


@cache
def _config() -> Config:
    return parse(
        "node.id=1\nprocess.roles=broker\ncluster.id=c\ncontroller.quorum.voters=101@h:1\nlisteners=h:2\nlog.dirs=/d\n"
        "log.segment.bytes=1024"
    )


@cache
def _written() -> Files:
    """A data directory with two partitions' logs of several segments, a metadata log, and all the small files."""
    disk = simulated_disk()
    manager = LogManager(_config(), disk)
    manager.load()
    for topic, index in _TOPICS:
        log = manager.get(topic, _TOPIC_ID, index, _config())
        for number in range(24):
            values = range(number, number + 1 + number % 5)
            sequence = {"producer_id": 9, "producer_epoch": 0, "base_sequence": 0} if number == 3 else {}
            log.append_as_leader(encode_int64s(values, timestamp_ms=number, **sequence), number // 9)
    manager.checkpoint(dict.fromkeys(_TOPICS, 50))
    manager.close(dict.fromkeys(_TOPICS, 100), 12)
    metadata, snapshots = open_log(disk, _METADATA, LogConfig(segment_bytes=600))
    for number in range(20):
        metadata.append_as_leader(encode_int64s([number], timestamp_ms=1), number // 4)
        if number in (3, 9):
            state = SnapshotId(metadata.end_offset, metadata.last_epoch)
            snapshots.write(state, encode_snapshot([b"a record"], state.epoch, 1))
            trim(metadata, snapshots, metadata.end_offset)
    metadata.close()
    QuorumStateStore(disk, _METADATA).write(ElectionState(4, 101, None))
    return {path: bytes(content) for path, content in disk.files().items()}


@cache
def _batches_written() -> dict[tuple[int, bytes], None]:
    """Every batch of any log or snapshot by its offset, without its leader epoch."""
    found = {}
    for path, content in _written().items():
        if path.endswith((".log", ".checkpoint")):
            for start, end, header in iter_batches(content):
                found[header.base_offset, _without_epoch(content[start:end])] = None
    return found


def _without_epoch(batch: bytes) -> bytes:
    changed = bytearray(batch)
    changed[_EPOCH] = bytes(4)
    return bytes(changed)


def run(data: bytes) -> None:
    dice = Dice(data)
    disk = _disk_of(_written())
    misplaced = False  # are there segments that nobody wrote at this place, or none where one was?
    for _ in range(dice.number(5)):
        misplaced |= _damage(disk, dice)
    _load_quorum_state(disk)
    damaged = {path: bytes(content) for path, content in disk.files().items()}
    manager = LogManager(_config(), disk)
    try:
        manager.load()
    except OSError as error:
        only(error)
        return
    logs = {f"{topic}-{index}": manager.get(topic, _TOPIC_ID, index, _config()) for topic, index in _TOPICS}
    try:
        logs[_METADATA], snapshots = open_log(disk, _METADATA, LogConfig(segment_bytes=600))
    except OSError as error:
        only(error)
    else:
        for id in filter(None, (snapshots.earliest, snapshots.latest)):
            snapshots.read(id)
    for directory, log in logs.items():
        _check_content(directory, log, trusted_below=log.recovery.validated_from)
        identity = f"{directory}/partition.metadata"
        if not misplaced and damaged.get(identity) == _written().get(identity):
            _check_complete(directory, log, damaged)
    for directory, log in logs.items():
        _check_second_load(directory, log, disk)


def _disk_of(files: Files) -> SimulatedDisk:
    disk = simulated_disk()
    for path, content in files.items():
        disk.make_directory(path.rpartition("/")[0])
        file = disk.open(path)
        file.append(content)
        file.close()
    return disk


def _damage(disk: SimulatedDisk, dice: Dice) -> bool:
    """True: segments are not where they were."""
    paths = sorted(disk.files())
    path = dice.pick(paths)
    content = disk.files()[path]
    at = dice.number(len(content) + 1)
    match dice.number(11):
        case 0 if at < len(content):
            content[at] ^= 1 << dice.number(8)
        case 1:
            del content[at:]
        case 2:
            size = dice.number(200)
            content[at : at + size] = bytes(min(size, len(content) - at))
        case 3:
            content += bytes(dice.number(9000))
        case 4:
            content += dice.take(dice.number(200))
        case 5:
            replaced = dice.take(dice.number(200))
            content[at : at + len(replaced)] = replaced
        case 6:
            content[:] = dice.take(dice.number(300))
        case 7:
            content[:] = disk.files()[dice.pick(paths)]
        case 8:
            disk.remove(path)
            return path.endswith(".log")
        case 9:
            base = dice.number(1 << 64) if dice.flag() else dice.number(200)
            _put(disk, f"{path.rpartition('/')[0]}/{segment_name(base)}".lstrip("/"), bytes(content))
            return True
        case _:
            _put(disk, _strange_path(dice), dice.take(dice.number(100)))
    return False


def _strange_path(dice: Dice) -> str:
    directory = dice.pick(
        ("t-0/", "", f"{_METADATA}/", "x-2/", "-/", "-0/", "t-\N{SUPERSCRIPT TWO}/", "x-99999999999/", "a b-1/")
    )
    name = dice.pick((
        "partition.metadata", "00000000000000000000.tmp", f"{10**20 - 1}-9999999999.checkpoint",
        "00000000000000000090-0000000003.checkpoint", "junk", "0.log", f"{10**20 - 1}.log", ".kafka_cleanshutdown",
        "leader-epoch-checkpoint", "\N{ARABIC-INDIC DIGIT ONE}" * 20 + ".log",
    ))  # fmt: skip
    return directory + name


def _put(disk: SimulatedDisk, path: str, content: bytes) -> None:
    disk.make_directory(path.rpartition("/")[0])
    file = disk.open(path)
    file.truncate(0)
    file.append(content)
    file.close()


def _load_quorum_state(disk: SimulatedDisk) -> None:
    try:
        state = QuorumStateStore(disk, _METADATA).read()
    except QuorumStateError as error:
        only(error)
        return
    if state is not None:
        QuorumStateStore(disk, _METADATA).write(state)


def _content(log: Log) -> list[tuple[int, bytes]]:
    """Each batch with its offset. Where a segment holds what another log's held, the metadata log may start, at the end
    of its snapshot, within a batch."""
    found, offset = [], log.start_offset
    while chunk := log.read(offset, 1 << 20):
        for start, end, header in iter_batches(chunk):
            if not found and header.base_offset < offset < header.next_offset:
                offset = header.base_offset
            if header.base_offset != offset:
                raise Finding(f"offset {header.base_offset} follows {offset - 1}")
            found.append((offset, chunk[start:end]))
            offset = header.next_offset
    if offset != log.end_offset:
        raise Finding(f"the log says that it ends at {log.end_offset}, its records do at {offset}")
    return found


def _check_content(directory: str, log: Log, trusted_below: int) -> None:
    last_epoch = -1
    for offset, batch in _content(log):
        epoch = int.from_bytes(batch[_EPOCH], "big", signed=True)
        if epoch < last_epoch:
            raise Finding(f"{directory}: epoch {epoch} at offset {offset}, after {last_epoch}")
        last_epoch = epoch
        if offset >= trusted_below and (offset, _without_epoch(batch)) not in _batches_written():
            raise Finding(f"{directory}: at offset {offset} is a batch that was never written")
    if log.end_offset > log.start_offset and log.last_epoch != last_epoch:
        raise Finding(f"{directory}: the last epoch is {last_epoch}, the log says {log.last_epoch}")


def _check_complete(directory: str, log: Log, damaged: Files) -> None:
    """Whatever lies before the first byte that was changed."""
    for path, content in sorted(_written().items()):
        if not path.startswith(f"{directory}/") or base_offset_of(path.rpartition("/")[2]) is None:
            continue
        for start, end, header in iter_batches(content):
            if damaged[path][start:end] != content[start:end]:
                return
            if log.end_offset < header.next_offset:
                raise Finding(f"{directory}: offset {header.base_offset} is whole on disk, the log ends before it")


def _check_second_load(directory: str, log: Log, disk: SimulatedDisk) -> None:
    content, fully_checked = _content(log), log.recovery.validated_from == 0
    log.append_as_leader(encode_int64s([1], timestamp_ms=1), 2**31 - 1)
    end, epochs = log.end_offset, log.end_offset_for_epoch(3)
    log.close()
    if directory == _METADATA:
        again, _ = open_log(disk, directory, LogConfig())
    else:
        again = Log.open(disk, directory, LogConfig())
    if not fully_checked:
        return
    if again.recovery.truncated_bytes or again.recovery.removed_segments or again.end_offset != end:
        raise Finding(f"{directory}: a second load finds something to repair: {again.recovery}")
    if _content(again)[:-1] != content or again.end_offset_for_epoch(3) != epochs:
        raise Finding(f"{directory}: a second load finds something else")


def seeds(random: Random) -> Iterator[bytes]:
    yield b""
    for kind in range(11):
        for _ in range(12):
            place = random.randbytes(3)
            yield bytes([1]) + place + bytes([kind]) + random.randbytes(30)
    for _ in range(40):
        yield bytes([random.randrange(1, 5)]) + random.randbytes(60)
    small = sorted(_written()).index(".kafka_cleanshutdown")
    for content in (
        b'{"brokerEpoch": 1e999}',
        b'{"brokerEpoch": true}',
        b"[" * 200,
        b'{"leaderEpoch": 9}',
        b"0\n1\n0 0\n",
    ):
        yield bytes([1, small, 0, 6, 0, len(content)]) + content


RECOVERY = Target("recovery", run, seeds)
