"""What a run would do, told before it does it: its nodes, its faults, whom they would strike, and by what each would be
done. Nothing is started or written, and nobody is asked but hosts of a service: whether its data is by itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.plan import registry
from harness.plan.plan import Plan
from harness.run.dry.recording import Call
from harness.run.dry.rehearsal import Planned, Rehearsal
from harness.run.order import Prepared
from harness.runtimes import How, how_in
from harness.targets.admin import REQUESTS
from nemesis import Nemesis


@dataclass(frozen=True)
class Preview:
    """why: about where it runs, a sentence; "": as asked for. nemeses: by name, those of the faults."""

    plan: Plan
    why: str
    faults: Sequence[Planned]
    nemeses: Mapping[str, Nemesis]
    how: How

    @property
    def nodes(self) -> list[dict[str, Any]]:
        addresses = self.how.addresses(self.plan)
        return [
            {
                "name": spec.name, "id": spec.id, "role": spec.role, "rack": spec.rack, "spare": spec.spare,
                "is_controller": spec.role == "controller" or spec.controller_port is not None,
                "address": addresses.get(spec.name),
            }
            for spec in registry.make_target(self.plan.target).nodes(self.plan)
        ]  # fmt: skip

    def by(self, call: Call) -> tuple[str, ...]:
        """The commands, system calls or requests by which that is done."""
        if call.kind == "admin":
            return (f"{REQUESTS[call.method]}, a request to the cluster",)
        return self.how.methods.get(call.method, ("not offered here",))


def preview(prepared: Prepared) -> Preview:
    plan, faults = prepared.tried, prepared.faults
    parts = registry.make_nemeses({each.nemesis for each in faults} - prepared.nemeses.keys(), plan.acks, plan.timing)
    nemeses = {**parts, **prepared.nemeses}
    used = {name: nemesis for name, nemesis in nemeses.items() if any(each.nemesis == name for each in faults)}
    return Preview(plan, prepared.why, Rehearsal(plan, nemeses).of(faults), used, how_in(plan.on, service=plan.service))
