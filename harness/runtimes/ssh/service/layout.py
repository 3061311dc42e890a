"""Which nodes a cluster has that is already there, by the hosts file alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.errors import BadArguments
from harness.runtimes.ssh.hosts_file import Host, Hosts
from harness.targets.target import NodeSpec


@dataclass(frozen=True)
class Layout:
    """In the order in which targets name their nodes: brokers that are controllers too, other brokers, controllers."""

    combined: tuple[Host, ...]
    brokers: tuple[Host, ...]
    controllers: tuple[Host, ...]

    @property
    def hosts(self) -> tuple[Host, ...]:
        return (*self.combined, *self.brokers, *self.controllers)

    @property
    def fields(self) -> Mapping[str, object]:
        """Of a plan."""
        return {
            "brokers": len(self.combined) + len(self.brokers),
            "controllers": len(self.combined) + len(self.controllers),
            "combined": bool(self.combined),
        }


def layout(hosts: Hosts) -> Layout:
    """Raises BadArguments: there is no such cluster, or none that a plan can tell of."""
    where = f"--hosts {hosts.path}"
    if hosts.service is None:
        raise BadArguments(f"{where} has no [service], and the plan is of a cluster that is already there")

    def of(*roles: str) -> tuple[Host, ...]:
        return tuple(each for each in hosts.hosts if each.roles == {*roles})

    found = Layout(of("broker", "controller"), of("broker"), of("controller"))
    if not found.combined and not (found.brokers and found.controllers):
        lacking = "controller" if found.brokers else "broker"
        raise BadArguments(f"{where} has no host that is a {lacking}, and each node of the cluster must be in it")
    if found.combined and found.controllers:
        raise BadArguments(
            f"{where}: {found.controllers[0].name} is a controller alone, while {found.combined[0].name} is a broker "
            "and a controller; with roles say which is which: either kind, not both"
        )
    return found


def assign(specs: Sequence[NodeSpec], hosts: Hosts) -> dict[str, Host]:
    """The host of each node, by its name. Raises BadArguments."""
    found = layout(hosts)
    if [spec.role for spec in specs] != ["broker"] * (len(found.combined) + len(found.brokers)) + ["controller"] * len(
        found.controllers
    ):
        raise BadArguments(f"--hosts {hosts.path} has another cluster than the plan was made for")
    return {spec.name: host for spec, host in zip(specs, found.hosts, strict=True)}


def port_of(spec: NodeSpec, hosts: Hosts) -> int:
    """Where it is reached first: by clients, or for a controller by its peers."""
    service = hosts.service
    assert service is not None
    return service.port if spec.role == "broker" else service.controller_port
