"""A run as it is asked for, by options, a plan's file or a cell of a matrix; and carrying it out."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import SystemRandom
from typing import Any, Final, NamedTuple

from harness.errors import BadArguments, HarnessFailure, RuntimeUnavailable
from harness.plan import registry, schedule_file
from harness.plan import schedule as schedules
from harness.plan.feasible import check_targets
from harness.plan.plan import Plan, flag, make_plan
from harness.plan.schedule import Schedule
from harness.record import results, room
from harness.report.terminal import say
from harness.run import there
from harness.runtimes import choose_runtime
from harness.targets.security import given
from nemesis import SIMULATION, Nemesis

#: Fields of a plan that are of one runtime only.
SIMULATED: Final = ("latency_ms", "task_order", "encode_messages")
_UNNAMED: Final = "not-yet-named"


class Done(NamedTuple):
    """A run that was judged."""

    directory: Path
    plan: Plan
    verdict: Mapping[str, Any]

    @property
    def was_stopped(self) -> bool:
        """Has the user asked to stop? (A run may also have ended early by itself.)"""
        return bool(results.read_json(self.directory / "run.json").get("stopped_by"))


@dataclass(frozen=True)
class Order:
    """fields: of Plan, as far as they are asked for; `on` may be "auto". results: where runs are kept. name: of the
    run's directory; None: it gets one of its own. judges: else the run is recorded, to be judged later. quiet: nothing
    is said meanwhile. facts: what run.json says besides. starts: else nothing is ever started, and what a client must
    have (a compiled driver, say) need not be there."""

    fields: Mapping[str, Any]
    results: Path
    keep: bool = False
    spark_ui_port: int | None = None
    name: str | None = None
    judges: bool = True
    quiet: bool = False
    facts: Mapping[str, Any] = field(default_factory=dict)
    starts: bool = True

    def prepared(self) -> Prepared:
        """Everything that can be known to be wrong before anything starts. Raises BadArguments, HarnessFailure,
        RuntimeUnavailable."""
        if self.name is not None:
            results.check_name(self.name)
        fields = {name: _absolute(name, value) for name, value in self.fields.items()}
        if "clients" in fields:
            fields["clients"] = given.absolute(fields["clients"])
            given.resolve(fields["clients"])  # here only to see that it can be
        named = registry.make_target(fields.setdefault("target", Plan.model_fields["target"].default))
        fields["target"] = named.named(fields.get("kafka_home"))
        target = registry.make_target(fields["target"])
        for name, value in fields.get("settings", {}).items():
            target.check_setting(name, value)
        file = None if fields.get("schedule") is None else Path(fields["schedule"])
        if file is not None:
            fields["nemesis"] = registry.parse_names(",".join(schedule_file.names_in(file)) or "none")
        wanted = fields.setdefault("nemesis", Plan.model_fields["nemesis"].default)
        nemeses = registry.make_nemeses(wanted, fields.get("acks", "all"))
        registry.load(registry.WORKLOADS, fields.get("workload", Plan.model_fields["workload"].default))
        client = registry.make_client(fields.get("client", Plan.model_fields["client"].default))
        for name, value in fields.get("client_settings", {}).items():
            client.check_setting(name, value)
        if self.starts:
            client.prepare(lambda line: None if self.quiet else say(line, file=sys.stderr))
        fields["on"], why = self._place(fields, nemeses, target)
        fields.setdefault("strike", registry.preferred_targets(nemeses))
        fields.setdefault("seed", SystemRandom().randrange(1_000_000))
        if fields.get("hosts") is not None:
            fields = there.agreed(fields, target)
        elif fields.get("service"):
            raise BadArguments("the plan is of a cluster that is already there; give --hosts, the file with [service]")
        # Before there is a directory that would have to go again.
        tried = make_plan(run=_UNNAMED, **fields)
        nemeses = registry.make_nemeses(wanted, tried.acks, tried.timing)
        check_targets(nemeses, tried)
        faults = _faults(nemeses, tried, file)
        if tried.service:
            parts = registry.make_nemeses({each.nemesis for each in faults} - nemeses.keys(), tried.acks, tried.timing)
            there.check_faults(tried, {**parts, **nemeses}, faults)
        return Prepared(self, tried, nemeses, faults, why)

    def _place(self, fields: Mapping[str, Any], nemeses: Mapping[str, Nemesis], target: Any) -> tuple[str, str]:
        """Where it runs, and why there, if that was not asked for. Raises BadArguments."""
        simulated = [flag(name) for name in SIMULATED if name in fields]
        only = [name for name, each in nemeses.items() if getattr(each, "runtimes", None) == SIMULATION]
        asked = fields.get("on", "auto")
        if fields.get("hosts") is not None:
            if asked not in ("auto", "ssh"):
                raise BadArguments(f"--hosts is for runs on hosts over SSH; leave it out or give --on ssh, not {asked}")
            asked = "ssh"
        elif asked == "ssh":
            raise BadArguments("--on ssh needs to know the hosts: give --hosts FILE (docs/hosts.md says what is in it)")
        place, why = choose_runtime([*only, *simulated], target) if asked == "auto" else (asked, "")
        registry.check_runtime(nemeses, place)
        if place == "simulation":
            if "file_system" in fields:
                raise BadArguments("--file-system is for volumes of containers; leave it out or add --on docker")
            if self.keep:
                raise BadArguments(
                    "--keep leaves containers up, and a simulation has none; leave it out or add --on docker"
                )
        elif place == "ssh" and self.keep:
            raise BadArguments("--keep: hosts undo all that there is of a run once its harness is gone; leave it out")
        elif simulated:
            raise BadArguments(f"{simulated[-1]} is for simulated networks; leave it out or add --on simulation")
        return place, why


def _absolute(name: str, value: Any) -> Any:
    """Of a field that may be a place, so that the plan can be read from anywhere. Raises BadArguments."""
    if name == "kafka_home" and value == "":
        raise BadArguments("--kafka-home is empty; give a distribution of Kafka, or its .tgz")
    is_place = (
        (name == "target" and str(value).endswith(".toml"))
        or (name == "kafka_home" and value is not None)
        or (name == "hosts" and value is not None)
        or (name == "upgrade_to" and value is not None and Path(value).exists())
    )
    return str(Path(value).expanduser().absolute()) if is_place else value


def _faults(nemeses: Mapping[str, Nemesis], plan: Plan, file: Path | None) -> Schedule:
    if file is None:
        faults = schedules.build(nemeses, plan.seed, plan.time_limit, plan.pace)
        schedules.check_room(nemeses, [faults], plan.time_limit, plan, plan.pace)
        return faults
    parts = registry.make_nemeses(schedule_file.parts_in(file), plan.acks, plan.timing)
    return schedule_file.read(file, parts, plan.seed, plan.time_limit, plan.node_names)


@dataclass(frozen=True)
class Prepared:
    """A run that can begin. why: a sentence about where it runs; "": as asked for."""

    order: Order
    tried: Plan
    nemeses: Mapping[str, Nemesis]
    faults: Schedule
    why: str

    def carry_out(self) -> Done:
        """Raises HarnessFailure, RuntimeUnavailable."""
        tried = self.tried
        directory = results.create(self.order.results, tried.nemesis, tried.seed, name=self.order.name)
        try:
            room.check(directory)
        except HarnessFailure:
            directory.rmdir()
            raise
        # In a cluster that was there the topic is one that nobody else has.
        topic = f"chaos-{directory.name}" if tried.service else tried.topic
        plan = tried.model_copy(update={"run": directory.name, "topic": topic})

        from harness.report.console import Progress
        from harness.report.terminal import silent
        from harness.run.run import components_of
        from harness.run.run import run as run_plan

        components = components_of(plan)
        with Progress(silent() if self.order.quiet else None) as progress:
            if self.why:
                progress.say(self.why)
            if (short := room.short(directory, plan)) is not None:
                progress.say(short)
            running = run_plan(
                plan, self.nemeses, directory, components, progress, schedule=self.faults, keep=self.order.keep,
                judges=self.order.judges, spark_ui_port=self.order.spark_ui_port, said_of_it=self.order.facts,
            )  # fmt: skip
            try:
                return Done(directory, plan, components.runtime.run(running))
            except (BadArguments, RuntimeUnavailable):
                results.remove_unbegun(directory)
                raise
