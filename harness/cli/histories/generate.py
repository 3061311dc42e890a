"""`chaos generate`: labelled histories, right by construction or with a known defect, to try checkers on."""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Final

import typer

from harness.cli.options import check_seed
from harness.errors import BadArguments, ExitCode, HarnessFailure
from harness.report.terminal import say


@dataclass(frozen=True)
class _Family:
    """The module that makes histories of a workload (DEFECTS_OF, generate() and perhaps generate_runs(); imported when
    one is asked for), what it is told of the workload, and what it calls --partitions."""

    module: str
    options: Mapping[str, Any] = field(default_factory=dict)
    partitions: str | None = None


WORKLOADS: Final[Mapping[str, _Family]] = {
    "append": _Family("harness.generate.log", partitions="partitions"),
    "register": _Family("harness.generate.registers", partitions="keys"),
    "cas-register": _Family("harness.generate.registers", {"cas": 0.3}, partitions="keys"),
    "list-append": _Family("harness.generate.transactions", {"workload": "list-append"}),
    "kafka": _Family("harness.generate.transactions", {"workload": "kafka"}),
    **{
        name: _Family("harness.generate.objects", {"workload": name})
        for name in ("rw-register", "bank", "long-fork", "comments", "sequential", "set-full", "queue", "total-queue")
    },
}
MAX_OPERATIONS: Final = 1_000_000_000
MAX_RUNS: Final = 1_000_000
MAX_PARTITIONS: Final = 10_000
_NOT_A_WORD: Final = 120  # characters of a run's name


def generate(
    workload: Annotated[str, typer.Option(metavar="NAME", help=f"{', '.join(WORKLOADS)}.")] = "append",
    operations: Annotated[str, typer.Option(metavar="COUNT", help="Of a run, e.g. 1000 or 10e6.")] = "1000",
    processes: Annotated[int, typer.Option(help="Clients.")] = 30,
    partitions: Annotated[
        int | None, typer.Option(help="Of the topic, or keys; fewer where there are few operations.")
    ] = None,
    seed: Annotated[int, typer.Option(help="The same seed gives the same history.")] = 1,
    defect: Annotated[
        str | None, typer.Option(metavar="NAME", help="Something wrong, at a few places; --list shows what there is.")
    ] = None,
    runs: Annotated[int, typer.Option(help="So many runs, as one dataset; a tenth of them has the defect.")] = 1,
    journal: Annotated[bool, typer.Option("--journal", help="As recorded, not laid out (workload append).")] = False,
    results: Annotated[Path, typer.Option("--results", metavar="DIR", help="Where runs are kept.")] = Path("results"),
    name: Annotated[str | None, typer.Option(metavar="NAME", help="Of the run; by default after what it is.")] = None,
    list_: Annotated[bool, typer.Option("--list", help="Show the defects of each workload.")] = False,
) -> int:
    """Write a labelled history, right by construction or with a known defect, for `chaos check`."""
    if list_:
        return list_defects()
    maker, family = maker_of(workload), WORKLOADS[workload]
    count = parse_count("--operations", operations, MAX_OPERATIONS)
    for flag, value, most in (
        ("--processes", processes, 1_000_000),
        ("--partitions", 1 if partitions is None else partitions, MAX_PARTITIONS),
        ("--runs", runs, MAX_RUNS),
    ):
        if not 1 <= value <= most:
            raise BadArguments(f"{flag} is {value}; valid is 1 to {most:,}")
    check_seed(seed)
    if partitions is not None and family.partitions is None:
        raise BadArguments(f"--partitions is not for workload {workload}; leave it out")
    if journal and (workload != "append" or runs > 1):
        raise BadArguments("--journal is for one run of workload append; leave it out")
    if runs > 1 and not hasattr(maker, "generate_runs"):
        raise BadArguments(f"--runs is for workload append; leave it out, or generate {workload} once for each run")
    options: dict[str, Any] = {"operations": count, "processes": processes, "seed": seed, "defect": defect}
    options |= family.options
    if partitions is not None and family.partitions is not None:
        options[family.partitions] = partitions
    if journal:
        options["journal"] = True
    directory = _new_directory(results, name or _name(workload, operations, seed, defect, runs))
    with _appearing(directory) as unfinished:
        if runs > 1:
            labels = maker.generate_runs(unfinished, runs=runs, **options)
            words = ", ".join(f"{count:,} labelled {verdict}" for verdict, count in labels.items() if count)
        else:
            label = maker.generate(unfinished, **options)
            words = f"labelled {label['verdict']}" + (f": {label['anomaly']}" if label.get("anomaly") else "")
    say(f"{directory}: {words}")
    return ExitCode.PASS


def list_defects() -> int:
    """A line each: workload, defect, what it is and the anomaly that must be found."""
    for workload in WORKLOADS:
        for defect, what in defects_of(workload).items():
            say(f"{workload}\t{defect}\t{what}")
    return ExitCode.PASS


def parse_count(flag: str, text: str, most: int) -> int:
    """A count as people write it: 1000, 10e6, 1_000. Raises BadArguments."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 1 <= number <= most or number != int(number):
        raise BadArguments(f"{flag} is {text}; it must be a whole number from 1 to {most:,}, e.g. 1000 or 10e6")
    return int(number)


def maker_of(workload: str) -> Any:
    if workload not in WORKLOADS:
        raise BadArguments(f"--workload {workload} is not known; there are {', '.join(WORKLOADS)}")
    return importlib.import_module(WORKLOADS[workload].module)


def defects_of(workload: str) -> Mapping[str, str]:
    """What is wrong and the anomaly that must be found, by name."""
    defects: Mapping[str, str] = maker_of(workload).DEFECTS_OF[workload]
    return defects


def _name(workload: str, operations: str, seed: int, defect: str | None, runs: int) -> str:
    parts = [f"{runs}-runs"] * (runs > 1) + [workload, operations, defect or "good", f"s{seed}"]
    return "generated-" + "-".join(parts)


def _new_directory(results: Path, name: str) -> Path:
    if "/" in name or name[:1] in ("", ".") or name == "latest" or len(name) > _NOT_A_WORD or not name.isprintable():
        raise BadArguments(f"--name {name!r} is no name of a run")
    directory = results / name
    if directory.exists():
        raise BadArguments(f"{directory} is there already; remove it, or give another --name")
    return directory


@contextmanager
def _appearing(directory: Path) -> Iterator[Path]:
    """Where to write what is to become the directory: whole at the end of the block, or nothing is left of it, be it
    interrupted or not. A half one could be taken for a whole one. Raises HarnessFailure if it cannot be written."""
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=".generating-", dir=directory.parent, ignore_cleanup_errors=True) as scratch:
            unfinished = Path(scratch) / directory.name  # makers call the run by it
            yield unfinished
            unfinished.rename(directory)
    except OSError as error:
        raise HarnessFailure(f"{directory} cannot be written: {error.strerror or error}") from None
