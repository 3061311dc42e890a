"""Options that several commands have, and how what is given for them is read."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Final, Literal

import typer

from harness.errors import BadArguments
from harness.plan.durations import seconds

#: Of random streams: what a signed 64-bit integer holds, as tables and other tools do.
MAX_SEED: Final = 2**63 - 1
MAX_SEEDS: Final = 1_000_000
_SEEDS: Final = re.compile(r"(\d{1,19})(?:\.\.(\d{1,19}))?")


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


def parse_seeds(text: str) -> list[int]:
    """`0..9,12` as [0, …, 9, 12]: in the order given, each once. Raises BadArguments."""
    seeds: dict[int, None] = {}
    for part in filter(None, (each.strip() for each in text.split(","))):
        match = _SEEDS.fullmatch(part)
        if match is None:
            raise BadArguments(f"--seeds {part!r} is neither a seed nor a range; valid are e.g. 7, 0..999 and 0..9,12")
        first, last = int(match[1]), int(match[2] or match[1])
        if max(first, last) > MAX_SEED:
            raise BadArguments(f"--seeds {part} goes beyond {MAX_SEED:,}, the last seed that there is")
        if last < first:
            raise BadArguments(f"--seeds {part} runs backwards; {last}..{first} is meant, or it is a mistake")
        if last - first >= MAX_SEEDS:
            raise BadArguments(f"--seeds {part} are {last - first + 1:,} seeds; valid are {MAX_SEEDS:,} at most")
        seeds.update(dict.fromkeys(range(first, last + 1)))
    if not 0 < len(seeds) <= MAX_SEEDS:
        how_many = f"are {len(seeds):,} seeds" if seeds else "names no seed"
        raise BadArguments(f"--seeds {text!r} {how_many}; valid are 1 to {MAX_SEEDS:,} of them, e.g. 0..999")
    return list(seeds)


ResultsOption = Annotated[Path, typer.Option("--results", metavar="DIR", help="Where runs are kept.")]
SparkUiOption = Annotated[int | None, typer.Option("--spark-ui-port", metavar="PORT", help="Show Spark's own pages.")]
TimeLimitOption = Annotated[
    float,
    typer.Option("--time-limit", metavar="TIME", parser=parse_time_limit, help="How long clients work, e.g. 5m."),
]

StrikeOption = Annotated[
    Literal["random", "leaders"] | None,
    typer.Option("--strike", help="Whom faults of one node strike; by default leaders for kill, else random."),
]
TargetOption = Annotated[
    str, typer.Option("--target", metavar="NAME", help="What is tested; see chaos list targets.")
]
#: What --strike was called before.
FormerTargetsOption = Annotated[str | None, typer.Option("--targets", hidden=True)]


def refuse_former_targets(given: str | None) -> None:
    """Raises BadArguments."""
    if given is not None:
        raise BadArguments(f"--targets is called --strike now; use --strike {given} (--target names what is tested)")
