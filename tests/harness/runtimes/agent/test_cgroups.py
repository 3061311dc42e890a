"""What is changed of cgroups (of version 2) that are not the run's own, in folders that stand for them."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.runtimes.agent.host import cgroups, holding
from harness.runtimes.agent.host.cgroups import Cgroup
from harness.runtimes.agent.volume import slow

SLICES = ("", "user.slice", "user.slice/user-1.slice")
CONTROL = "cgroup.subtree_control"


class Root:
    """A hierarchy whose files take what is written as the kernel does."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.written: list[str] = []
        for each in SLICES:
            (folder / each).mkdir()
            (folder / each / CONTROL).write_text("cpu memory")
        (folder / "cgroup.controllers").write_text("cpu io memory")
        self.session = folder / SLICES[-1] / "session.scope"
        self.session.mkdir()

    def write(self, path: Path, text: str) -> None:
        words = set(path.read_text().split())
        self.written.append(text)
        (words.add if text[0] == "+" else words.discard)(text[1:])
        path.write_bytes(" ".join(sorted(words)).encode())

    def hands_io_down(self) -> list[bool]:
        """From above."""
        return ["io" in (self.folder / each / CONTROL).read_text() for each in SLICES]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Root:
    made = Root(tmp_path / "cgroup")
    monkeypatch.setattr(cgroups, "_ROOT", made.folder)
    monkeypatch.setattr(slow, "_CGROUPS", made.folder)
    write = Path.write_text
    monkeypatch.setattr(
        Path, "write_text", lambda path, text: (made.write if path.name == CONTROL else write)(path, text)
    )
    return made


def test_what_the_root_hands_down_is_as_before_once_a_run_is_undone(root: Root, tmp_path: Path) -> None:
    for _ in range(2):  # it is made for each start of a node
        assert Cgroup("r", tmp_path).make() == [str(root.folder / "chaos-r" / "cgroup.procs")]
        assert root.hands_io_down() == [True, False, False]
    for _ in range(2):
        cgroups.put_back(tmp_path)
        assert root.hands_io_down() == [False, False, False]
    assert root.written == ["+io", "-io"]


def test_what_others_have_made_it_hand_down_stays(
    root: Root, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    Cgroup("r", tmp_path).make()
    monkeypatch.setattr(holding, "boot", lambda: "another")  # with which all that we have done is gone
    cgroups.put_back(tmp_path)
    Cgroup("r", tmp_path).make()
    cgroups.put_back(tmp_path)
    assert root.written == ["+io"]


@pytest.mark.parametrize("fails", [False, True])
def test_a_trial_of_limits_takes_back_what_it_has_changed_above_its_session(
    root: Root, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    (root.folder / "user.slice" / CONTROL).write_bytes(b"io")
    monkeypatch.setattr(slow, "_cgroup_of", lambda _: slow._Cgroup(root.session, is_v2=True))
    if fails:
        (root.session / "io.max").mkdir()
        monkeypatch.setattr(Path, "exists", lambda path: path.name != "io.max")
    assert (slow.lacking() is None) == (not fails)
    assert root.written == ["+io", "+io", "-io", "-io"]
    assert root.hands_io_down() == [False, True, False]
