"""reassign: partitions move as a plan says; or what is under way is cancelled."""

from __future__ import annotations

from ..telemetry.printable import say
from .cluster import Cluster
from .moves import Moves, cancel
from .output import ToolError, plural, print_json
from .plan_file import check_plan, read_plan


async def run(cluster: Cluster, plan_file: str | None, *, throttle: int | None, cancelling: bool, as_json: bool) -> int:
    """Raises ToolError, Interrupted."""
    if plan_file is None and not cancelling:
        raise ToolError("--plan FILE or --cancel is missing")
    plan = {} if plan_file is None else read_plan(plan_file)
    if cancelling:
        cancelled = await cancel(cluster, plan or None)
        if as_json:
            print_json({"cancelled": cancelled})
        else:
            say(f"{cancelled} reassignment{'s are' if cancelled != 1 else ' is'} cancelled; no throttle is in force")
        return 0
    assert plan_file is not None
    check_plan(plan_file, plan, await cluster.state())
    done = await Moves(cluster, plan, throttle, whole=True).carry_out()
    if as_json:
        print_json(done)
    else:
        say(f"done: {plural(done['replicas_moved'], 'replica')} moved in {done['seconds']:g} s")
    return 0
