"""The network of a host: what the agent does to it never touches SSH.

An escape rule comes first in every chain and every tree of queues: whatever comes to, or leaves, a port that sshd
serves passes, here or on another host: this one may be the way to that. Who is no node (OUTSIDE) is told by the node's
ports, for the addresses of clients are not known.
"""

from __future__ import annotations

import ipaddress
import json
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Final

from .. import kernel, tools
from ..network.card import Ends, Network
from ..network.queues import INCOMING, ROOT, Queues

#: Stands for the addresses of all who are no nodes.
OUTSIDE: Final = "0.0.0.0"
_UNPLUGGED: Final = "unplugged"
#: Queues that the kernel gives an interface by itself have no handle: all others are somebody's.
_NO_HANDLE: Final = "0:"
_INGRESS: Final = ("ingress", "clsact")


@dataclass(frozen=True)
class HostEnds(Ends):
    """nodes: addresses of all nodes. ports: where the node of this host serves, first that of clients. ssh_ports: where
    sshd does, on whichever of them."""

    nodes: Sequence[str]
    ports: Sequence[int]
    ssh_ports: Sequence[int]

    def escape(self, field: str) -> str:
        ports = _set(map(str, self.ssh_ports))
        return f"tcp sport {ports} accept; tcp dport {ports} accept; "

    def rule(self, field: str, address: str, verdict: str, *, before: str = "", chance: str = "") -> str:
        if address != OUTSIDE:
            return super().rule(field, address, verdict, before=before, chance=chance)
        match = f"ip {field} != {_set(self.nodes)} tcp {_port(field)} {_set(map(str, self.ports))}"
        return f'{before}{match} {chance} counter {verdict} comment "{field} {OUTSIDE}"; '

    def unplugged(self) -> str:
        """Commands: nothing of nodes and clients comes or goes any more. What a killed process' sockets still want to
        send is answered by a reset that does not leave this host: they are gone when the network is back."""
        served = f"tcp {_port('saddr')} {_set(map(str, self.ports))} drop; "
        incoming = f"ip saddr {_set(self.nodes)} drop; {served}"
        leaving = (f"ip daddr {_set(self.nodes)}", f"tcp {_port('daddr')} {_set(map(str, self.ports))}")
        outgoing = "".join(f"{match} meta l4proto tcp reject with tcp reset; " for match in leaving)
        outgoing += "".join(f"{match} drop; " for match in leaving)
        return f"""
table inet chaos {{
  chain {_UNPLUGGED}-in {{ type filter hook input priority -10; policy accept; {self.escape("saddr")}{incoming} }}
  chain {_UNPLUGGED}-out {{ type filter hook output priority -10; policy accept; {self.escape("daddr")}{outgoing} }}
}}
"""


class HostNetwork(Network):
    ends: HostEnds

    def __init__(self, ends: HostEnds) -> None:
        super().__init__(0, ends)

    def unplug(self) -> None:
        self.plug_in()
        self.run(self.ends.unplugged())

    def plug_in(self) -> None:
        """Safe to repeat."""
        chains = (f"{_UNPLUGGED}-in", f"{_UNPLUGGED}-out")
        declared = " ".join(f"chain {chain} {{ }};" for chain in chains)
        deleted = "".join(f"delete chain inet chaos {chain}\n" for chain in chains)
        self.run(f"table inet chaos {{ {declared} }}\n{deleted}")

    def is_unplugged(self) -> bool:
        return any(chain.startswith(_UNPLUGGED) for chain in self._chains())

    def tables_there_are(self) -> list[str]:
        tables = [item["table"] for item in self._listed() if item.get("table", {}).get("name") == "chaos"]
        return [f"table {table['family']} {table['name']}" for table in tables]

    def _chains(self) -> list[str]:
        return [item["chain"]["name"] for item in self._listed() if item.get("chain", {}).get("table") == "chaos"]


class HostQueues(Queues):
    """On the interface by which the other nodes are reached. Refuses, by OSError, one that has queues of its owner's:
    they would be lost."""

    def __init__(self, namespace: int, ends: HostEnds, own: str) -> None:
        """own: the address of this host among the nodes."""
        super().__init__(namespace)
        self._ends = ends
        self._own = own

    def build(self, tree: Mapping[str, Any]) -> None:
        if tree:
            self.clear()
            device = self._device()
            for qdisc in self._qdiscs():
                set_by_somebody = (qdisc.get("root") and qdisc["handle"] != _NO_HANDLE) or qdisc["kind"] in _INGRESS
                if qdisc["dev"] == device and set_by_somebody:
                    raise OSError(f"{device} has queues of its own ({qdisc['kind']} {qdisc['handle']}), which this "
                                  "would replace")  # fmt: skip
        super().build(tree)

    def _is_ours(self, qdisc: Mapping[str, object]) -> bool:
        if qdisc["kind"] == "ingress":
            return self._incoming() and self._leads_to_ours(str(qdisc["dev"]))
        return super()._is_ours(qdisc) and qdisc["handle"] == ROOT

    def _leads_to_ours(self, device: str) -> bool:
        """All ingress queues have the same handle, and there may be one on each interface: whose it is its filters
        tell."""
        try:
            filters = tools.run(["tc", "filter", "show", "dev", device, "parent", "ffff:"], network=self._namespace)
        except OSError:  # the interface is gone
            return False
        return f"to device {INCOMING})" in filters

    def _device(self) -> str:
        kernel.enter_network_namespace(self._namespace)
        others = [address for address in self._ends.nodes if address != self._own]
        routed = json.loads(tools.run(["ip", "-j", "route", "get", others[0] if others else self._own],
                                      network=self._namespace))  # fmt: skip
        return str(routed[0]["dev"])

    def _matching(self, interface: str, address: str) -> str:
        if address != OUTSIDE:
            return super()._matching(interface, address).replace("protocol ip", "protocol ip pref 2", 1)
        side = "dport" if interface == INCOMING else "sport"
        return f"protocol ip pref 3 u32 match ip protocol 6 0xff match ip {side} {self._ends.ports[0]} 0xffff"

    def _unshaped(self, interface: str) -> Iterator[str]:
        """SSH; and, of what comes from outside, what other nodes send."""
        base = f"filter add dev {interface} parent {ROOT} protocol ip pref 1 u32 match"
        direct = f"flowid {ROOT}0"
        for side, port in product(("sport", "dport"), self._ends.ssh_ports):
            yield f"{base} ip protocol 6 0xff match ip {side} {port} 0xffff {direct}"
        if interface == INCOMING:
            for address in self._ends.nodes:
                yield f"{base} ip src {address} {direct}"


def _port(field: str) -> str:
    """Of this host's end: packets from there come to it, packets that go there leave by it."""
    return "dport" if field == "saddr" else "sport"


def _set(values: Any) -> str:
    return f"{{ {', '.join(values)} }}"


def address_of(name: str) -> str:
    """IPv4. Raises OSError."""
    try:
        return str(ipaddress.IPv4Address(name))
    except ValueError:
        return str(socket.getaddrinfo(name, None, socket.AF_INET)[0][4][0])
