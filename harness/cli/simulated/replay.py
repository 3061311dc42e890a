"""`chaos replay`, `chaos shrink` and `chaos inspect`, of a saved run: their arguments, and what they print."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from harness.cli.options import WorkersOption, check_workers
from harness.errors import BadArguments, ExitCode
from harness.record import results
from harness.report.terminal import print_table, say, say_json

if TYPE_CHECKING:
    from harness.explore.replaying.again import Again
    from harness.explore.replaying.exactly import Replayed
    from harness.plan.plan import Plan

MAX_BUDGET = 1_000_000

_SHOWN_ANOMALIES = 20

RunArgument = Annotated[str, typer.Argument(metavar="RUN", help="A run's name or directory, or latest.")]
ResultsOption = Annotated[Path, typer.Option("--results", metavar="DIR", help="Where runs are kept.")]


def replay(
    name: RunArgument,
    times: Annotated[
        int | None,
        typer.Option("--times", metavar="N", help="Of a run in containers: how often it is run; by default 10."),
    ] = None,
    trace: Annotated[bool, typer.Option("--trace", help="Print every change that the nodes tell of.")] = False,
    story: Annotated[bool, typer.Option("--story", help="Tell what led to the violation.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")] = False,
    results_directory: ResultsOption = Path("results"),
) -> int:
    """Repeat a simulated run step by step, and say whether it is the same: 255 if not, else its verdict's code. Run
    the plan of one in containers or on hosts again, and say how often its violation came back: the worst of the codes.
    """
    from harness.plan.plan import Plan

    directory = results.find(name, results_directory)
    plan = Plan.load(directory)
    if plan.on != "simulation":
        if trace or story:
            asked = "--trace" if trace else "--story"
            raise BadArguments(
                f"{asked} is for simulated runs, which repeat exactly; {directory.name} ran on {plan.on}: `chaos logs` "
                "tells what its nodes did"
            )
        return _repeat(directory, plan, _DEFAULT_TIMES if times is None else times, results_directory, as_json)
    if times is not None:
        raise BadArguments(
            f"--times is for runs in containers and on hosts; {directory.name} was simulated, and repeats exactly"
        )

    from harness.explore.replaying.exactly import replay as replay_run

    replayed = replay_run(directory)
    verdict = replayed.verdict
    code = int(verdict["exit_code"]) if replayed.is_same else ExitCode.HARNESS_FAILURE
    if as_json:
        say_json(
            {
                "run": directory.name, "on": "simulation", "is_same": replayed.is_same, "recorded": replayed.recorded,
                "trace_hash": replayed.simulated.trace_hash, "verdict": verdict["verdict"], "reason": verdict["reason"],
                **({"trace": list(map(str, replayed.trace))} if trace else {}),
                **({"story": _story(replayed)} if story else {}), "exit_code": int(code),
            },
            indent=2,
        )  # fmt: skip
        return code
    if trace:
        for event in replayed.trace:
            say(str(event))
    if story:
        _tell(replayed)
    say(replayed.comparison())
    _conclude(verdict)
    return code


_DEFAULT_TIMES: Final = 10


def _repeat(directory: Path, plan: Plan, times: int, results_directory: Path, as_json: bool) -> int:
    """Of a run in containers or on hosts."""
    from harness.explore.replaying import again

    if not 1 <= times <= again.MOST_TIMES:
        raise BadArguments(f"--times is {times}; valid is 1 to {again.MOST_TIMES:,}")
    prepared = again.prepare(directory, plan, results_directory, quiet=as_json)

    def tell(so_far: Again) -> None:
        if not as_json:
            say(so_far.line())

    found = again.repeat(directory, times, prepared.carry_out, tell)
    if as_json:
        say_json(found.as_dict(plan.on), indent=2)
    else:
        say(found.summary())
    return found.exit_code


def shrink(
    name: RunArgument,
    budget: Annotated[int, typer.Option(metavar="RUNS", help="How many runs may be simulated.")] = 500,
    workers: WorkersOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")] = False,
    results_directory: ResultsOption = Path("results"),
) -> int:
    """Make a simulated run that fails as small as it can be, tell its story, and keep it beside that run, as
    RUN-shrunk."""
    directory = results.find(name, results_directory)
    check_workers(workers)
    if not 1 <= budget <= MAX_BUDGET:
        raise BadArguments(f"--budget is {budget}; valid is 1 to {MAX_BUDGET:,}")

    from harness.explore.replaying.exactly import shrink_run
    from harness.report.console import Progress

    with Progress() as progress:
        smaller, shrunk, replayed = shrink_run(
            directory, budget=budget, workers=workers or os.cpu_count() or 1, say=progress.tick
        )
    if as_json:
        say_json(
            {
                "run": str(smaller), "broken": str(shrunk.broken), "minimal": shrunk.minimal, "runs": shrunk.runs,
                "faults_before": shrunk.faults_before, "faults": len(shrunk.schedule), "story": _story(replayed),
                "verdict": replayed.verdict["verdict"], "reason": replayed.verdict["reason"],
            },
            indent=2,
        )  # fmt: skip
        return int(replayed.verdict["exit_code"])
    _tell(replayed)
    why = "nothing more can go" if shrunk.minimal else "the budget is spent or it was stopped, so more might go"
    say(f"{shrunk.runs} runs: {shrunk.faults_before} planned faults, {len(shrunk.schedule)} left; {why}")
    say(f"keeps: {shrunk.broken}")
    say(f"replay: chaos replay {smaller} --story")
    return _conclude(replayed.verdict)


def _tell(replayed: Replayed) -> None:
    say("\n".join(_story(replayed)), end="\n\n")


def _story(replayed: Replayed) -> list[str]:
    from harness.explore.story import tell

    return tell(replayed.simulated, replayed.verdict, replayed.trace)


def _conclude(verdict: Any) -> int:
    say(f"{verdict['verdict']}: {verdict['reason']}")
    return int(verdict["exit_code"])


def inspect(
    name: RunArgument,
    results_directory: ResultsOption = results.DEFAULT,
) -> int:
    """Read the disks and traces of a run's nodes again, as they lie in its directory now, and judge the run by them."""
    from harness.record.inspecting import inspect as judge

    directory = results.find(name, results_directory)
    verdict, rows = judge(directory)
    found = Counter(row["property"] for row in rows)
    looked_at = {**verdict["nodes"].get("looked_at", {})}
    if verdict["replica_records"]:
        looked_at = {"LogMatching": f"{verdict['replica_records']:,} records of replicas", **looked_at}
    names = dict.fromkeys([*verdict["anomalies"], *looked_at, *found])
    print_table(
        ("property", "anomalies", "looked at"),
        [(name, f"{found[name]:,}", looked_at.get(name, "")) for name in names],
    )  # fmt: skip
    for reason in verdict["nodes"]["not_checked"]:
        say(f"not checked: {reason}")
    for row in rows[:_SHOWN_ANOMALIES]:
        say(f"{row['property']}: {row['anomaly']}: {row['message']}")
    if len(rows) > _SHOWN_ANOMALIES:
        say(f"… and {len(rows) - _SHOWN_ANOMALIES:,} more")
    say(f"{verdict['verdict']}: {verdict['reason']}")
    return ExitCode(verdict["exit_code"])
