"""`make protocol-table`: drops the rule of each row of cluster_image/PROTOCOL.md, and runs the row's tests.

`--changed`: rows whose rule, drop or tests are not those that verified.txt knows, and a tenth of the others, drawn by
`--seed`. Ids of rows, or beginnings of ids: these alone. Exit status 1: a row's tests pass without its rule.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from multiprocessing.connection import wait
from pathlib import Path
from typing import Final

from . import without
from .drops import Drop, drops, find
from .rows import ROOT, Row, names, rows

VERIFIED: Final = Path(__file__).parent / "verified.txt"
_SHARE: Final = 10


def main() -> int:
    parser = argparse.ArgumentParser(prog="make protocol-table", description=__doc__)
    parser.add_argument("rows", nargs="*", help="ids, or how they begin")
    parser.add_argument("--changed", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--verbose", action="store_true", help="what pytest says of rows whose tests pass")
    arguments = parser.parse_args()

    without.preload()
    known = drops()
    chosen = _chosen(arguments.rows, known, arguments.seed if arguments.changed else None)
    undone = [row.id for row in chosen if row.id not in known and not row.not_dropped]
    droppable = [row for row in chosen if row.id in known]
    bad = 0
    verified = _verified()
    for row, result in _results(droppable, known, arguments.processes):
        good = result.outcome == "fails"
        bad += not good
        reported = {"fails": "", "passes": "PASSES WITHOUT ITS RULE", "broken": "CANNOT BE RUN"}[result.outcome]
        print(f"{row.id:20} {result.seconds:6.1f} s  {reported}".rstrip(), flush=True)
        if result.outcome == "broken" or (not good and arguments.verbose):
            print(result.printed)
        if good:
            verified[row.id] = digest(row, known[row.id])
        else:
            verified.pop(row.id, None)
    if undone:
        print(f"{len(undone)} rows have neither a drop nor a reason why there is none: {', '.join(undone)}")
    print(f"{len(droppable)} rules dropped: the tests of {bad} rows pass without, or cannot be run")
    if not arguments.changed:
        current = {row.id for row in rows()}
        VERIFIED.write_text("".join(f"{id_} {verified[id_]}\n" for id_ in sorted(verified) if id_ in current))
    return int(bad > 0 or bool(undone))


def _results(
    droppable: Sequence[Row], known: Mapping[str, Drop], processes: int
) -> Iterator[tuple[Row, without.Result]]:
    """As they come; so many at a time. What cannot be run is tried once more: a process that is forked where libraries
    have threads may die of it."""
    left = list(reversed(droppable))
    tried_again: set[str] = set()
    running: list[tuple[Row, without.Running]] = []
    while left or running:
        while left and len(running) < processes:
            row = left.pop()
            running.append((row, without.Running(names(row.tests), known[row.id])))
        wait([each.sentinel for _, each in running], timeout=1.0)
        results = [(row, each, each.result()) for row, each in running]
        running = [(row, each) for row, each, result in results if result is None]
        for row, _, result in results:
            if result is not None and result.outcome == "broken" and row.id not in tried_again:
                tried_again.add(row.id)
                left.append(row)
            elif result is not None:
                yield row, result


def _chosen(asked: Sequence[str], known: Mapping[str, Drop], seed: int | None) -> list[Row]:
    every = [row for row in rows() if not asked or row.id.startswith(tuple(asked))]
    if seed is None:
        return every
    verified = _verified()
    drawn = random.Random(seed)
    return [
        row
        for row in every
        if (row.id not in known or verified.get(row.id) != digest(row, known[row.id])) or drawn.random() < 1 / _SHARE
    ]


def _verified() -> dict[str, str]:
    """Digests by row."""
    if not VERIFIED.exists():
        return {}
    return dict(line.split() for line in VERIFIED.read_text().splitlines())


def digest(row: Row, drop: Drop) -> str:
    """Of the functions that the row names, of its tests, and of its drop."""
    code = [name.partition(":") for name in names(row.code)]
    tests = [name.partition("::") for name in names(row.tests)]
    parts = [_source(ROOT / "cluster_image" / path, name) for path, _, name in code]
    parts += [_source(ROOT / path, name) for path, _, name in tests]
    return hashlib.sha256("\0".join([repr(drop), *parts]).encode()).hexdigest()[:16]


def _source(path: Path, name: str) -> str:
    source, tree = _parsed(path)
    node = find(tree, name.replace("::", "."))
    return "" if node is None else ast.get_source_segment(source, node) or ""


@cache
def _parsed(path: Path) -> tuple[str, ast.Module]:
    source = path.read_text()
    return source, ast.parse(source)


if __name__ == "__main__":
    sys.exit(main())
