"""Options that several commands have, and how what is given for them is read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final, Literal

import typer

from harness.errors import BadArguments
from harness.plan.durations import seconds
from harness.plan.seeds import MAX_SEED


def parse_time_limit(text: str | float) -> float:
    """`90`, `1.5`, `500ms`, `10s` or `2m`, in seconds. Raises BadArguments."""
    try:
        return seconds(text)
    except ValueError as error:
        raise BadArguments(f"--time-limit: {error}") from None


def check_seed(seed: int) -> None:
    """Raises BadArguments."""
    if not 0 <= seed <= MAX_SEED:
        raise BadArguments(f"--seed is {seed}; valid is 0 to {MAX_SEED:,}")


ResultsOption = Annotated[Path, typer.Option("--results", metavar="DIR", help="Where runs are kept.")]
SparkUiOption = Annotated[int | None, typer.Option("--spark-ui-port", metavar="PORT", help="Show Spark's own pages.")]
TimeLimitOption = Annotated[
    float,
    typer.Option("--time-limit", metavar="TIME", parser=parse_time_limit, help="How long clients work, e.g. 5m."),
]

DeleteRecordsOption = Annotated[
    str | None,
    typer.Option(
        "--delete-records",
        metavar="TIME",
        help="Delete the begin of each partition so often (DeleteRecords; one time in four all that is committed), "
        "e.g. 5s; by default never.",
    ),
]


ShortLivedTopicsOption = Annotated[
    str | None,
    typer.Option(
        "--short-lived-topics",
        metavar="TIME",
        help="Make topics beside the one that is tested, so long apart: they are changed, written, read and deleted, "
        "e.g. 2s; by default none.",
    ),
]


def administration(delete_records: str | None, short_lived_topics: str | None) -> dict[str, float]:
    """The fields of a plan for --delete-records and --short-lived-topics, if they are given. Raises BadArguments."""
    fields = {}
    for name, text in (("delete_records", delete_records), ("short_lived_topics", short_lived_topics)):
        try:
            if text is not None:
                fields[name] = seconds(text)
        except ValueError as error:
            raise BadArguments(f"--{name.replace('_', '-')}: {error}") from None
    return fields


ProducersOption = Annotated[
    Literal["plain", "idempotent", "fenced"],
    typer.Option(help="Of workload append: idempotent ones retry, 5 batches in flight; fenced: and others take over."),
]

WorkersOption = Annotated[
    int | None,
    typer.Option("--workers", metavar="N", help="Processes; by default as many as there are processors."),
]
_MOST_WORKERS: Final = 1024


def check_workers(workers: int | None) -> None:
    """Raises BadArguments."""
    if workers is not None and not 1 <= workers <= _MOST_WORKERS:
        raise BadArguments(f"--workers is {workers}; valid is 1 to {_MOST_WORKERS:,}")


StrikeOption = Annotated[
    Literal["random", "leaders"] | None,
    typer.Option("--strike", help="Whom faults of one node strike; by default leaders for kill, else random."),
]


def _known_mutant(id_: str | None) -> str | None:
    """Raises BadArguments."""
    if id_ is not None:
        from harness.runtimes.simulation.mutants.places import find

        find(id_)
    return id_


MutantOption = Annotated[
    str | None,
    typer.Option(
        "--mutant", metavar="ID", callback=_known_mutant,
        help="In simulation: change one place of the cluster's code; see chaos prove --mutants.",
    ),
]
TargetOption = Annotated[str, typer.Option("--target", metavar="NAME", help="What is tested; see chaos list targets.")]
ExpectOption = Annotated[
    list[str] | None,
    typer.Option(
        "--expect",
        metavar="THRESHOLD",
        help="Fail also unless this holds, e.g. 'recovery < 10s', 'p99 < 500ms'; repeatable.",
    ),
]
AbortIfOption = Annotated[
    list[str] | None,
    typer.Option(
        "--abort-if",
        metavar="CONDITION",
        help="Heal and end early once this holds, e.g. 'unavailable > 60s', 'errors > 50%'; repeatable.",
    ),
]
#: What --strike was called before.
FormerTargetsOption = Annotated[str | None, typer.Option("--targets", hidden=True)]


def refuse_former_targets(given: str | None) -> None:
    """Raises BadArguments."""
    if given is not None:
        raise BadArguments(f"--targets is called --strike now; use --strike {given} (--target names what is tested)")
