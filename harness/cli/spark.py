"""`--spark`, of every command that judges: it chooses the master of this process's one session."""

from __future__ import annotations

from typing import Annotated

import typer

from spark_history.spark import master


def _choose(text: str) -> str:
    try:
        return master.choose(text).url
    except master.BadMaster as error:
        raise typer.BadParameter(str(error)) from None


SparkOption = Annotated[
    str,
    typer.Option(
        "--spark",
        metavar="MASTER",
        callback=_choose,
        help="Where to judge: local[N], a cluster at spark://HOST:PORT, or Spark Connect at sc://HOST:PORT. "
        "What fits in memory is judged without Spark.",
    ),
]
LOCAL = master.LOCAL


def check_reachable() -> None:
    """Before anything starts that would have to go again. Raises HarnessFailure if the chosen Spark, which is not of
    this process, does not answer."""
    if master.chosen().kind == "local":
        return
    from harness.errors import HarnessFailure
    from spark_history.spark.session import SparkUnavailable, reach

    try:
        reach(master.chosen())
    except SparkUnavailable as error:
        raise HarnessFailure(str(error)) from None
