"""What nodes make of the files of their logs, whom leaders keep in the ISR, and how long appends wait: lies that are
planted in their code, each found by its own name."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace
from typing import Any, Final

import pytest

from checkers.inside.kraft.simulated.log_files import LogFilesOracle
from checkers.inside.violation import Violated
from checkers.properties import ISR_SHRINKS
from cluster_image.kraft.broker.partition import Partition
from cluster_image.kraft.node import METADATA_DIRECTORY
from cluster_image.replication import produce
from cluster_image.storage import log
from cluster_image.storage.log import Log
from cluster_image.storage.segment import Segment
from cluster_image.storage.segments import Segments
from harness.runtimes.simulation.disk.disk import SimulatedDisk

from .lies import EXPLORED, Lies, check_found


def believes_all(patch: pytest.MonkeyPatch) -> None:
    """Whatever its recovery point says."""
    patch.setattr(log, "_validate_from", lambda clean, recovery_point, newest_segment: log.MAX_OFFSET)


def cuts_too_much(patch: pytest.MonkeyPatch) -> None:
    """The last batch of a log that is opened goes."""
    load = Log._load

    def loaded(self: Log, *given: Any) -> None:
        load(self, *given)
        if self.end_offset > self.start_offset:
            self.truncate_to(self.end_offset - 1)
            self.recovery = self.recovery._replace(end_offset=self.end_offset)

    patch.setattr(Log, "_load", loaded)


def never_closes(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Segment, "close", lambda self: None)


def keeps_the_empty_one(patch: pytest.MonkeyPatch) -> None:
    def restart_at(self: Segments, offset: int) -> None:
        self._remove_after(1)
        self._segments[0].truncate_to(self._segments[0].base_offset)
        if offset != self._segments[0].base_offset:
            self.add(offset)

    patch.setattr(Segments, "restart_at", restart_at)


def keeps_who_lags(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Partition, "consider_shrinking", lambda self, now, eligible: None)


def never_gives_up(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(produce, "_expire", lambda waiting: None)


LIES: Final[Lies] = {
    "who has no proof believes its disk": (believes_all, "OpenedLog", 0),
    "what is whole is thrown away": (cuts_too_much, "OpenedLog", 0),
    "an empty segment stays": (keeps_the_empty_one, "LogFiles", 0),
    "who lags stays in the ISR": (keeps_who_lags, ISR_SHRINKS, 0),
    "an append waits for ever": (never_gives_up, "AcknowledgedOnceCommitted", 0),
}


#: Where logs come and go.
DELETED: Final[Lies] = {"files stay open": (never_closes, "LogFiles", 0)}
SHORT_LIVED: Final = EXPLORED.model_copy(update={"short_lived_topics": 0.5, "time_limit": 30.0})


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_is_found(lie: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check_found(LIES, lie, monkeypatch)


def test_a_file_that_stays_open_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    check_found(DELETED, "files stay open", monkeypatch, SHORT_LIVED)


def test_a_disk_tells_what_a_process_has_open() -> None:
    disk, nothing = SimulatedDisk(Random(0)), lambda *_: None
    mount = disk.mount(lambda: True, nothing, nothing)
    first, second = mount.open("a"), mount.open("a")
    assert disk.open_files() == ["a", "a"]
    first.close()
    first.close()
    assert disk.open_files() == ["a"]
    second.close()
    assert disk.open_files() == []
    assert disk.mount(lambda: True, nothing, nothing) and disk.open_files() == [], "of the process that runs"


def test_regression_of_a_node_that_has_left_the_quorum_nothing_is_asked() -> None:
    """A guided run, 8721: at the very step at which a full disk ended the process, the log of the metadata was open and
    nobody's."""
    open_ = [f"{METADATA_DIRECTORY}/00000000000000000000.log"]
    disk: Any = SimpleNamespace(damaged=False, misleading=False, files=dict, open_files=lambda: open_)
    oracle = LogFilesOracle()
    oracle.node_started("controller-1", disk)
    left: Any = SimpleNamespace(broker=None, raft=SimpleNamespace(quorum=None))
    oracle.look("controller-1", left)
    other = SimpleNamespace(files_below=lambda offset: [], is_given_up=False, directory=METADATA_DIRECTORY)
    quorum = SimpleNamespace(replica=SimpleNamespace(log=other))
    member: Any = SimpleNamespace(broker=None, raft=SimpleNamespace(quorum=quorum))
    with pytest.raises(Violated, match="which is of none of its logs"):
        oracle.look("controller-1", member)
