"""Damage to the files of a simulated disk, by the Docker agent's rules."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cluster_image.storage.checkpoints import LOG_START_FILE, offsets_in
from harness.runtimes.agent.volume import damage as agent
from harness.runtimes.simulation.disk.disk import SimulatedDisk
from harness.runtimes.simulation.disk.page_cache import Inode


def chosen(disk: SimulatedDisk, choice: Mapping[str, Any]) -> str | None:
    """Which file; None: there is none to damage."""
    filled = [path for path, content in disk.files().items() if content]
    return agent.chosen(filled, choice)


def is_deleted(disk: SimulatedDisk, path: str) -> bool:
    """Is this closed segment below its log's start, as noted on the disk? Its file is about to go, and nobody reads it
    again."""
    directory, _, _ = path.rpartition("/")
    topic, _, partition = directory.rpartition("-")
    starts = offsets_in(disk.synced(LOG_START_FILE) or b"") or {}
    later = sorted(other for other in disk.files() if other.startswith(f"{directory}/") and other.endswith(".log"))
    following = next((other for other in later if other > path), None)
    return following is not None and _base(following) <= starts.get((topic, int(partition)), 0)


def _base(path: str) -> int:
    return int(path.rpartition("/")[2].removesuffix(".log"))


class FileDamage:
    """A file that was damaged, on the disk and for its readers, and the way back."""

    def __init__(self, inode: Inode, done: agent.Damage) -> None:
        self.done = done
        self._inode = inode

    @classmethod
    def do(cls, disk: SimulatedDisk, path: str, choice: Mapping[str, Any]) -> FileDamage:
        """choice: see Node.damage_file. path: as chosen()."""
        inodes = dict(disk.root.inodes())
        content = inodes[path].content
        position, after = agent.plan(bytes(content), choice["how"], choice["where"], choice["bit"], path)
        before = bytes(content[position : position + len(after)] if after else content[position:])
        offset = agent.first_hit(path, bytes(content), position)
        if after:
            content[position : position + len(after)] = after
        else:
            inodes[path].truncate(position)
        inodes[path].sync()
        return cls(inodes[path], agent.Damage(path, 0, position, len(content), before, after, offset))

    def undo(self, disk: SimulatedDisk) -> bool:
        """False: the file is not as it was left, or is about to change."""
        done, content = self.done, self._inode.content
        inodes = dict(disk.root.inodes())
        if inodes.get(done.path) is not self._inode or not agent.is_candidate(done.path, inodes):
            return False
        if len(content) != done.size or content[done.position : done.position + len(done.after)] != done.after:
            return False
        content[done.position : done.position + len(done.before)] = done.before
        self._inode.sync()
        return True
