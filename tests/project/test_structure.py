"""The rooms of the code stay what docs/architecture.md says that they are."""

from __future__ import annotations

import ast
import re
import subprocess
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Final

import networkx
import pytest

from tests import ROOT

MOST_ENTRIES: Final = 15
#: Folders whose files are of one kind each, however many there are.
OF_ONE_KIND: Final = frozenset({"cluster_image/kraft/bugs", "tests/hashes/commands"})
#: What each package may import of the others.
MAY_IMPORT: Final[Mapping[str, frozenset[str]]] = {
    "cluster_image": frozenset(),
    "spark_history": frozenset(),
    "checkers": frozenset({"spark_history", "cluster_image"}),
    "nemesis": frozenset({"harness"}),
    "workloads": frozenset({"harness", "cluster_image"}),
}
#: Of harness, what nemeses and workloads are made for, and small types.
SMALL_TYPES: Final = (
    "cluster", "errors", "targets.jars", "targets.security", "targets.timing", "targets.admin", "plan.plan",
    "record.history", "report.console",
)  # fmt: skip
#: What is of generations of the protocol, and who may know it: everything else of cluster_image is a seam, or Kafka's
#: formats.
OF_KRAFT: Final = ("kraft", "tools")
KNOW_KRAFT: Final = (
    *("harness.targets.kraft", "checkers.inside.kraft", "cluster_image"),
    "harness.targets.v2.zookeeper",  # whose model replicates its log as controllers do
)
OF_V2: Final = ("v2",)
KNOW_V2: Final = ("harness.targets.v2", "checkers.inside.v2", "cluster_image")
#: What a process of either is made with.
OF_NODES: Final = ("node", "config", "telemetry.log_lines")
KNOW_NODES: Final = ("harness.targets.kraft", "harness.targets.v2", "checkers.inside.kraft", "cluster_image")
PACKAGES: Final = ("cluster_image", "spark_history", "checkers", "nemesis", "workloads", "harness")


@cache
def modules() -> Mapping[str, Path]:
    found = {}
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def imports() -> Mapping[str, frozenset[str]]:
    """By module, all that it imports of this project: at its head, in functions, and for types alone."""
    return {name: frozenset(_imported(name, path)) - {name} for name, path in modules().items()}


def _imported(name: str, path: Path) -> Iterator[str]:
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names if each.name in modules())
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            for each in node.names:
                whole = f"{base}.{each.name}"
                yield from (each for each in ((whole,) if whole in modules() else (base,)) if each in modules())


def of(name: str, rooms: tuple[str, ...], package: str = "") -> bool:
    prefix = f"{package}." if package else ""
    return any(name == prefix + room or name.startswith(f"{prefix}{room}.") for room in rooms)


def test_no_folder_of_code_has_more_entries_than_one_can_take_in() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", *PACKAGES, "tests"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.splitlines()  # fmt: skip
    entries: dict[str, set[str]] = defaultdict(set)
    # A package's py.typed is an empty mark for type checkers.
    for path in (each for each in listed if (ROOT / each).exists() and not each.endswith("/py.typed")):
        parts = path.split("/")
        for depth in range(1, len(parts)):
            entries["/".join(parts[:depth])].add(parts[depth])
    assert {path: len(of) for path, of in entries.items() if len(of) > MOST_ENTRIES and path not in OF_ONE_KIND} == {}


def test_no_modules_import_each_other_in_a_circle() -> None:
    graph = networkx.DiGraph((name, other) for name, others in imports().items() for other in others)
    assert [sorted(each) for each in networkx.strongly_connected_components(graph) if len(each) > 1] == []


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_packages_import_what_lies_below_them(package: str) -> None:
    wrong = [
        f"{name} imports {other}"
        for name, others in imports().items()
        for other in others
        if of(name, (package,)) and not of(other, (package, *MAY_IMPORT[package]))
    ]
    assert wrong == []


def test_nemeses_and_workloads_know_no_more_of_the_harness_than_its_small_types() -> None:
    wrong = [
        f"{name} imports {other}"
        for name, others in imports().items()
        for other in others
        if of(name, ("nemesis", "workloads")) and of(other, ("harness",)) and not of(other, SMALL_TYPES, "harness")
    ]
    assert wrong == []


@pytest.mark.parametrize(
    ("rooms", "known_to"),
    [(OF_KRAFT, KNOW_KRAFT), (OF_V2, KNOW_V2), (OF_NODES, KNOW_NODES)],
    ids=["kraft", "v2", "nodes"],
)
def test_only_its_target_and_its_checkers_know_a_generation(rooms: tuple[str, ...], known_to: tuple[str, ...]) -> None:
    wrong = [
        f"{name} imports {other}"
        for name, others in imports().items()
        for other in others
        if not of(name, known_to) and of(other, rooms, "cluster_image")
    ]
    assert wrong == []


def test_generations_know_nothing_of_each_other() -> None:
    wrong = [
        f"{name} imports {other}"
        for name, others in imports().items()
        for other in others
        for one, another in (("kraft", "v2"), ("v2", "kraft"))
        if of(name, (one,), "cluster_image") and of(other, (another,), "cluster_image")
    ]
    assert wrong == []


def test_the_checks_of_kraft_are_its_own() -> None:
    outside = [
        f"{name} imports {other}"
        for name, others in imports().items()
        for other in others
        if of(other, ("checkers.inside.kraft",)) and not of(name, ("checkers", "harness.targets.kraft"))
    ]
    assert outside == []


@pytest.mark.parametrize("room", ["replication", "storage", "wire", "placement"])
def test_what_generations_of_the_protocol_share_knows_none_of_them(room: str) -> None:
    generation = ("kraft", "v2", "node", "tools")
    wrong = [
        f"{name} imports {other}"
        for name, others in imports().items()
        for other in others
        if of(name, (room,), "cluster_image") and of(other, generation, "cluster_image")
    ]
    assert wrong == []


@pytest.mark.parametrize("target", ["kraft", "kafka", "v2"])
def test_nobody_else_knows_which_target_it_is(target: str) -> None:
    """A target knows itself and what Kafka-like ones share, and so do its checkers, found by a plan's word."""
    wrong = [
        f"{name} imports {other}"
        for name, others in imports().items()
        for other in others
        if (of(other, (f"harness.targets.{target}",)) and not of(name, (f"harness.targets.{target}",)))
        or (of(other, (f"checkers.inside.{target}",))
            and not of(name, (f"checkers.inside.{target}", f"harness.targets.{target}")))
    ]  # fmt: skip
    assert wrong == []


def test_only_the_commands_and_a_run_see_runtimes() -> None:
    """What is run, what strikes, what is asked of it and what judges it know where only through Protocols."""
    wrong = [
        f"{name} imports {other}"
        for name, others in imports().items()
        for other in others
        if of(other, ("harness.runtimes",))
        and not of(name, ("harness.runtimes", "harness.run", "harness.cli", "harness.explore", "harness.bench"))
    ]
    assert wrong == []


def test_the_modules_that_the_picture_names_are_there() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    named = set(re.findall(rf"`((?:{'|'.join(PACKAGES)}|tests|docs)/[\w./-]*)`", text))
    assert len(named) > 30
    assert sorted(path for path in named if not (ROOT / path).exists()) == []


def test_a_wheel_has_every_file_that_the_code_reads() -> None:
    setuptools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    patterns = setuptools["package-data"]["*"]
    listed = subprocess.run(["git", "ls-files", *PACKAGES], cwd=ROOT, capture_output=True, text=True, check=True)
    for name in listed.stdout.split():
        if Path(name).suffix not in (".py", ".md", ".in", ".png"):
            assert any(Path(name).match(pattern) for pattern in patterns), name
