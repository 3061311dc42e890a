"""Takes all figures, or those of the parts named (`make bench ARGS="cluster"`), and prints them."""

from __future__ import annotations

import os
import platform
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from harness.bench import (
    Figure,
    checkers,
    cluster,
    defects,
    export,
    long_runs,
    moves,
    placement,
    runs,
    search,
    simulation,
)
from harness.runtimes import choose_runtime

#: Each part takes a directory for results.
PARTS: Final[Mapping[str, Callable[[Path], Iterator[Figure]]]] = {
    "simulation": simulation.measure,
    "checkers": checkers.measure,
    "long": long_runs.measure,
    "export": export.measure,
    "runs": runs.measure,
    "clients": runs.measure_clients,
    "cluster": cluster.measure,
    "moves": moves.measure,
    "placement": placement.measure,
    "defects": defects.measure,
    "search": search.measure,
}
ONLY_BY_NAME: Final = ("defects", "search")  # each takes most of an hour or longer
NEED_CONTAINERS: Final = ("runs", "clients", "cluster", "moves")


def main(names: Sequence[str]) -> None:
    if unknown := set(names) - set(PARTS):
        sys.exit(f"there is no part {sorted(unknown)[0]!r} of the bench; there are {', '.join(PARTS)}")
    place, why = choose_runtime()
    figures: list[Figure] = []
    for name in names or [name for name in PARTS if name not in ONLY_BY_NAME]:
        if name in NEED_CONTAINERS and place != "docker":
            print(f"no figures of {name}: {why}", file=sys.stderr)
            continue
        with tempfile.TemporaryDirectory(prefix="chaos-bench-") as directory:
            figures += PARTS[name](Path(directory))
    machine = f"{os.cpu_count()} cores, {platform.system()} {platform.release()}, Python {platform.python_version()}"
    table = Table(title=machine)
    for column in ("figure", "aim", "measured", "met"):
        table.add_column(column, overflow="fold")
    for figure in figures:
        table.add_row(figure.name, figure.aim, figure.measured, {None: "", True: "yes", False: "no"}[figure.met])
    Console().print(table)


if __name__ == "__main__":
    main(sys.argv[1:])
