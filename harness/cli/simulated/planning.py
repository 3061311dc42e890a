"""What the options of `chaos explore` make of an exploration."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from harness.cli.nemesis import pace
from harness.cli.options import administration

if TYPE_CHECKING:
    from harness.explore.source import Seeds
    from harness.plan.plan import Plan


def planned(given: Mapping[str, Any], first: int) -> tuple[Plan, Callable[[Plan, int], Plan]]:
    """What its options make of an exploration: the plan of all its runs, and what a seed makes of it. given: by names
    of explore's parameters. first: of its seeds. Raises BadArguments."""
    from harness.explore import swarm
    from harness.plan import registry
    from harness.plan import schedule as schedules
    from harness.plan.feasible import check_targets
    from harness.plan.plan import make_plan, parse_settings

    tested = registry.make_target(given["target"])
    wanted = registry.parse_names(given["nemesis"])
    nemeses = registry.make_nemeses(wanted, given["acks"])
    registry.check_runtime(nemeses, "simulation", advise=False)
    registry.load(registry.WORKLOADS, given["workload"])
    chosen = {name: given[name] for name in ("latency_ms", "producers", "task_order") if given[name] is not None}
    plan = make_plan(
        run="explore", on="simulation", nemesis=wanted, seed=first,
        strike=given["strike"] or registry.preferred_targets(nemeses),
        must_take_effect="none" if given["allow_vacuous"] else "any",
        settings=parse_settings(given["settings"] or (), tested),
        **{name: given[name] for name in _AS_THEY_ARE}, **pace(given["interval"], given["recovery"]),
        **administration(given["delete_records"], given["short_lived_topics"]), **chosen,
    )  # fmt: skip
    check_targets(nemeses, plan)
    schedules.check_room(
        nemeses, schedules.build(nemeses, first, plan.time_limit, plan.pace), plan.time_limit, plan, plan.pace
    )
    vary = given["vary"]
    return plan, partial(
        swarm.plan_of, draw_settings=vary, draw_latency=vary and "latency_ms" not in chosen,
        draw_producers=vary and "producers" not in chosen, draw_order=vary and "task_order" not in chosen,
    )  # fmt: skip


def seeds_of(plan: Plan, plan_of: Callable[[Plan, int], Plan], numbers: Sequence[int]) -> Seeds:
    """The runs of such an exploration (see planned) with these seeds."""
    from harness.explore.source import Seeds

    return Seeds(partial(plan_of, plan), numbers)


#: Options whose values are a plan's as they are.
_AS_THEY_ARE: Final = (
    "target", "workload", "time_limit", "rate", "concurrency", "acks", "partitions", "replication_factor",
    "min_insync_replicas", "brokers", "spare_brokers", "racks", "controllers", "combined", "bug", "mutant",
    "encode_messages",
)  # fmt: skip
