"""What was collected of the nodes after a run, piece by piece, and what was not: table `collected` of the history.

A checker that finds no trace of a node cannot tell one that left none from one whose trace was lost. So the harness
says of each piece of evidence that was due how much of it there is, and why not all of it.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal, Protocol

import pyarrow as pa

from cluster_image.storage.records import RecordError
from harness.errors import describe
from spark_history.damage import checksum
from spark_history.schema import COLLECTED

What = Literal["replica log", "trace", "metadata log", "disk", "file"]
_COLUMNS: Final = COLLECTED.remove(COLLECTED.get_field_index("run"))
_OF_DISKS: Final = ("replica log", "metadata log")
#: Copies of disks right after power cuts, in a run's directory: <node>-<number of the cut, from 1>.
CUT_DISKS: Final = "disks-at-cuts"
#: Of a run's directory: what the history was read from.
_FOLDERS: Final = ("trace", "disks", CUT_DISKS)


@dataclass(frozen=True)
class Collected:
    """One piece: see schema.COLLECTED. records: rows of the table of its name."""

    node: str
    what: What
    records: int = 0
    problem: str | None = None  # a sentence
    topic: str | None = None
    partition: int | None = None
    file: str | None = None
    size: int | None = None
    crc: int | None = None


class Recorder(Protocol):
    """The part of history.Recorder used here."""

    def add_rows(self, table: str, rows: Any) -> None: ...


def record_collected(pieces: Iterable[Collected], recorder: Recorder) -> list[str]:
    """Into the history; returns the problems."""
    pieces = list(pieces)
    recorder.add_rows("collected", pa.Table.from_pylist([asdict(piece) for piece in pieces], schema=_COLUMNS))
    return [piece.problem for piece in pieces if piece.problem is not None]


def why(error: Exception) -> str:
    """For a piece's problem: what is wrong with what a node has written. Whatever that is, it is one piece's."""
    return str(error) if isinstance(error, RecordError | OSError) else describe(error)


def missing(what: What, nodes: Sequence[str], pieces: Iterable[Collected]) -> list[Collected]:
    """Of nodes of which nothing of the kind is among `pieces`."""
    there = {piece.node for piece in pieces if piece.what == what}
    return [Collected(node, what, problem=f"no {what} of {node} was found") for node in nodes if node not in there]


def with_problems(pieces: Iterable[Collected], not_whole: Mapping[str, str]) -> list[Collected]:
    """not_whole: by node, why its disk is not there as it was, as a sentence: told of its disk, beside what else there
    is to tell of it. Its logs are not whole either, as far as anybody knows: what they lack is held against nobody."""
    reported = []
    left = dict(not_whole)
    for piece in pieces:
        problem = None
        if piece.what == "disk":
            problem = left.pop(piece.node, None)
        elif piece.what in _OF_DISKS and piece.node in not_whole:
            problem = f"the {piece.what} of {piece.node} may not be whole, as its disk is not"
        if problem is not None:
            piece = replace(piece, problem="; ".join(filter(None, (piece.problem, problem))))
        reported.append(piece)
    return [*reported, *(Collected(node, "disk", problem=problem) for node, problem in sorted(left.items()))]


def collected_files(directory: Path) -> list[Collected]:
    """The files of a run's directory that its history was read from, with their checksums."""
    paths = sorted(
        path
        for folder in _FOLDERS
        for path in (directory / folder).rglob("*")
        if path.is_file() and not path.is_symlink()
    )
    with ThreadPoolExecutor() as threads:
        return [
            Collected(_node_of(path), "file", file=str(path), size=size, crc=crc)
            for path, (size, crc) in zip(
                (path.relative_to(directory) for path in paths), threads.map(_sum, paths), strict=True
            )
        ]


def _sum(path: Path) -> tuple[int, int]:
    try:
        return checksum(path)
    except OSError:  # of another user, say: whoever read it has told so
        return 0, zlib.crc32(b"")


def _node_of(path: Path) -> str:
    """trace/<node>.jsonl, disks/<node>/…, or of its disk after a power cut …/<node>-<number>/…"""
    folder, name = path.parts[:2]
    return name.rpartition("-")[0] if folder == CUT_DISKS else name.removesuffix(".jsonl")
