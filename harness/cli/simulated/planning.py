"""What the options of `chaos explore` make of an exploration."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from harness.cli.nemesis import pace
from harness.cli.options import administration

if TYPE_CHECKING:
    from harness.explore.source import Seeds
    from harness.explore.swarm import Swarm
    from harness.plan.plan import Plan


def planned(
    given: Mapping[str, Any], seeds: Sequence[int] = (0,), *, draws_faults: bool = True
) -> tuple[Plan, Swarm]:
    """What its options make of an exploration: the plan of all its runs, and what a seed makes of it. given: by names
    of explore's parameters. seeds: of the whole exploration, of which one at least is to have each nemesis.
    draws_faults: or others are carried out than its seeds draw. Raises BadArguments."""
    from harness.explore.swarm import DRAWN, Swarm
    from harness.plan import registry
    from harness.plan import schedule as schedules
    from harness.plan.feasible import check_targets
    from harness.plan.plan import make_plan, parse_settings

    tested = registry.make_target(given["target"])
    wanted = registry.parse_names(given["nemesis"])
    nemeses = registry.make_nemeses(wanted, given["acks"])
    registry.check_runtime(nemeses, "simulation", advise=False)
    registry.load(registry.WORKLOADS, given["workload"])
    chosen = {name: given[name] for name in _DRAWN_OR_GIVEN if given[name] is not None}
    plan = make_plan(
        run="explore", on="simulation", nemesis=wanted, seed=seeds[0],
        strike=given["strike"] or registry.preferred_targets(nemeses),
        must_take_effect="none" if given["allow_vacuous"] else "any",
        settings=parse_settings(given["settings"] or (), tested),
        **{name: given[name] for name in _AS_THEY_ARE}, **pace(given["interval"], given["recovery"]),
        **administration(given["delete_records"], given["short_lived_topics"]), **chosen,
    )  # fmt: skip
    check_targets(nemeses, plan)
    if draws_faults:
        schedules.check_room(
            nemeses, (schedules.build(nemeses, seed, plan.time_limit, plan.pace) for seed in seeds[:_LOOKED_AT]),
            plan.time_limit, plan, plan.pace,
        )  # fmt: skip
    return plan, Swarm([name for name in DRAWN if name not in chosen] if given["vary"] else ())


def seeds_of(plan: Plan, plan_of: Callable[[Plan, int], Plan], numbers: Sequence[int]) -> Seeds:
    """The runs of such an exploration (see planned) with these seeds."""
    from harness.explore.source import Seeds

    return Seeds(partial(plan_of, plan), numbers)


#: Options that keep seeds from drawing it.
_DRAWN_OR_GIVEN: Final = ("latency_ms", "producers", "task_order", "records_per_batch")
#: Of the seeds of an exploration, to find one with room for each nemesis; mostly the first has.
_LOOKED_AT: Final = 100
#: Options whose values are a plan's as they are.
_AS_THEY_ARE: Final = (
    "target", "workload", "time_limit", "rate", "concurrency", "acks", "partitions", "replication_factor",
    "min_insync_replicas", "brokers", "spare_brokers", "racks", "controllers", "combined", "bug", "mutant",
    "encode_messages",
)  # fmt: skip
