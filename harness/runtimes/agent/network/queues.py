"""The queues that slow down a node's packets: token buckets (tbf), and netem where the kernel has it.

What a node sends is shaped where it sets out, on the node's own interface. What reaches it from outside the network of
the run, where no agent is, goes through a queue of an interface of its own (ifb) after it has come in.
"""

from __future__ import annotations

import json
import socket
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from .. import kernel, tools

#: Of all our kinds of queues; what the engine gives a container has none of them.
_KINDS = ("htb", "netem", "tbf", "ingress")
INCOMING = "chaos-in"  # the interface of what comes from outside
ROOT = "c405:"  # of our tree on each interface: by this handle it is known for ours
_NETEM_PACKETS = 100_000  # that may be delayed at a time
_DIRECT_PACKETS = 1_000  # the engine's interfaces have no queue to tell it from
_QUEUE_S = 0.5  # at its rate, what waits in a token bucket's queue at most
_SMALLEST_QUEUE = 16 << 10  # bytes
_BURST_S = 0.02
_SMALLEST_BURST = 2_000  # bytes: a packet


@dataclass(frozen=True)
class Queue:
    """As harness.cluster.Shape, of what queues do."""

    delay_ms: float = 0.0
    jitter_ms: float = 0.0
    reorder: float = 0.0
    rate_kbit: float = 0.0

    def __bool__(self) -> bool:
        return self != Queue()

    def __add__(self, other: Queue) -> Queue:
        """Both, one after the other."""
        return Queue(
            self.delay_ms + other.delay_ms,
            self.jitter_ms + other.jitter_ms,
            1 - (1 - self.reorder) * (1 - other.reorder),
            min(filter(None, (self.rate_kbit, other.rate_kbit)), default=0.0),
        )


Tree = Mapping[str, Queue]  # `daddr 10.0.0.1`: what goes there; `saddr 10.0.0.1`: what comes from there


class Queues:
    """Of one network namespace."""

    def __init__(self, namespace: int) -> None:
        self._namespace = namespace
        self._leaves: dict[str, tuple[str, str]] = {}  # by interface and handle: its end, as in Tree, and its kind
        self._read: dict[str, Counter[str]] = {}  # by interface and handle, what its counters said

    def build(self, tree: Tree) -> None:
        """In place of what there was; what waits in that is lost, as packets are. Nothing is left of an empty one."""
        self.clear()
        if not tree:
            return
        device = self._device()
        commands = []
        for interface, field in ((device, "daddr"), (INCOMING, "saddr")):
            ends = {end.split()[1]: queue for end, queue in sorted(tree.items()) if end.startswith(field)}
            if ends and interface == INCOMING:
                self._run("ip", [f"link add {INCOMING} type ifb", f"link set {INCOMING} up"])
                commands.append(f"qdisc add dev {device} ingress")
                commands += (
                    f"filter add dev {device} parent ffff: {self._matching(interface, address)} "
                    f"action mirred egress redirect dev {INCOMING}"
                    for address in ends
                )
            if ends:
                commands += self._branches(interface, field, ends)
        self._run("tc", commands)

    def clear(self) -> None:
        """Whoever made them."""
        self._leaves.clear()
        self._read.clear()
        self._run("tc", [f"qdisc del dev {device} {place}" for device, place in self._roots()])
        if self._incoming():
            self._run("ip", [f"link del {INCOMING}"])

    def passed(self) -> dict[str, Counter[str]]:
        """By end, since it was last asked: packets `delayed` and `ahead` of those, `throttled` (how often some had to
        wait for their turn at the rate), `dropped` for want of room to wait, and `bytes` that passed at the rate. netem
        counts as requeued what it puts at the head of its queue, though nobody may have waited there."""
        found: dict[str, Counter[str]] = {}
        for name, now in self._counters().items():
            end, kind = self._leaves[name]
            counted = found.setdefault(end, Counter())
            new = now - self._read.get(name, Counter())
            counted["dropped"] += new["drops"]
            if kind == "netem":
                counted["delayed"] += new["packets"] - new["requeues"]
                if new["requeues"]:
                    counted["ahead"] += new["requeues"]
            else:
                counted["throttled"] += new["overlimits"]
                counted["bytes"] += new["bytes"]
            self._read[name] = now
        return found

    def there_are(self) -> bool:
        """Whoever made them."""
        return bool(self._roots()) or self._incoming()

    def _branches(self, interface: str, field: str, ends: Mapping[str, Queue]) -> Iterator[str]:
        """A class for each address: a link has a rate, and counters, of its own."""
        yield f"qdisc add dev {interface} root handle {ROOT} htb default 0 direct_qlen {_DIRECT_PACKETS}"
        yield from self._unshaped(interface)
        for number, (address, queue) in enumerate(ends.items(), start=2):
            yield f"class add dev {interface} parent {ROOT} classid {ROOT}{number:x} htb rate 10gbit quantum 60000"
            parent = f"{ROOT}{number:x}"
            for level, (kind, options) in enumerate(_leaves(queue)):
                handle = f"{number:x}{level}:"
                yield f"qdisc add dev {interface} parent {parent} handle {handle} {kind} {options}"
                parent = f"{handle}1"
                self._leaves[f"{interface} {handle}"] = f"{field} {address}", kind
            matching = self._matching(interface, address)
            yield f"filter add dev {interface} parent {ROOT} {matching} flowid {ROOT}{number:x}"

    def _matching(self, interface: str, address: str) -> str:
        """The filter for what goes to an address, or, on the interface of what comes from outside, comes from it."""
        return f"protocol ip u32 match ip {'src' if interface == INCOMING else 'dst'} {address}"

    def _unshaped(self, interface: str) -> Iterator[str]:
        """Commands that come before the filters of all ends."""
        yield from ()

    def _counters(self) -> dict[str, Counter[str]]:
        return {
            name: Counter({key: qdisc[key] for key in ("packets", "bytes", "drops", "overlimits", "requeues")})
            for qdisc in (self._qdiscs() if self._leaves else ())
            if (name := f"{qdisc['dev']} {qdisc['handle']}") in self._leaves
        }

    def _roots(self) -> list[tuple[str, str]]:
        """Interface, and `root` or `ingress`: with these go all the others."""
        ours = [qdisc for qdisc in self._qdiscs() if self._is_ours(qdisc)]
        return [
            (str(qdisc["dev"]), "ingress" if qdisc["kind"] == "ingress" else "root")
            for qdisc in ours
            if qdisc["kind"] == "ingress" or qdisc.get("root")
        ]

    def _is_ours(self, qdisc: Mapping[str, object]) -> bool:
        return qdisc["kind"] in _KINDS and qdisc["dev"] != INCOMING

    def _incoming(self) -> bool:
        """Is there its interface?"""
        return INCOMING in self._interfaces()

    def _qdiscs(self) -> list[dict[str, object]]:
        answer: list[dict[str, object]] = json.loads(tools.run(["tc", "-s", "-j", "qdisc", "show"],
                                                               network=self._namespace) or "[]")  # fmt: skip
        return answer

    def _device(self) -> str:
        return next((name for name in self._interfaces() if name not in ("lo", INCOMING)), "lo")

    def _interfaces(self) -> list[str]:
        kernel.enter_network_namespace(self._namespace)
        return [name for _, name in socket.if_nameindex()]

    def _run(self, program: str, commands: list[str]) -> None:
        if commands:
            tools.run([program, "-batch", "-"], network=self._namespace, lines=commands)


def _leaves(queue: Queue) -> Iterator[tuple[str, str]]:
    """Kinds and options, the outer one first."""
    if queue.delay_ms or queue.jitter_ms:
        options = f"limit {_NETEM_PACKETS} delay {queue.delay_ms:.3f}ms"
        if queue.jitter_ms:
            options += f" {queue.jitter_ms:.3f}ms"
        if queue.reorder:
            options += f" reorder {100 * queue.reorder:.4f}%"
        yield "netem", options
    if queue.rate_kbit:
        bytes_per_s = queue.rate_kbit * 1000 / 8
        burst = max(_SMALLEST_BURST, round(bytes_per_s * _BURST_S))
        limit = max(_SMALLEST_QUEUE, round(bytes_per_s * _QUEUE_S))
        yield "tbf", f"rate {round(queue.rate_kbit * 1000)}bit burst {burst} limit {limit}"
