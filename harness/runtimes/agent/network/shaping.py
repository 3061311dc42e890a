"""What one node's links do to packets: some are lost or come twice (rules by chance), and queues (see queues.py).

Packets are lost where they arrive, so that nobody is told of it, and come twice because whoever sends them sends some
of them once more. At the far end of a link to the outside there is no agent: both then happen on this node.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from .card import NOTHING, Ends, Network
from .queues import Queue, Queues

_CHANCE = 1_000_000  # rules can tell shares as small as one in so many
_MARK = 0xC405  # of a packet that comes twice
#: What queues count, as evidence.
_QUEUED = {
    "delayed": "packets_delayed", "ahead": "packets_reordered", "throttled": "throttled", "dropped": "packets_dropped",
    "bytes": "shaped_bytes",
}  # fmt: skip


@dataclass(frozen=True)
class Wanted:
    """The links of one key, by the addresses of their other ends. outside: the address of what has no agent."""

    outgoing: Collection[str]
    incoming: Collection[str]
    outside: str
    shape: Mapping[str, float]  # harness.cluster.Shape

    @property
    def queue(self) -> Queue:
        return Queue(**{name: self.shape[name] for name in Queue.__dataclass_fields__})

    @property
    def queued(self) -> list[str]:
        """Ends, as in queues.Tree."""
        if not self.queue:
            return []
        incoming = [address for address in self.incoming if address == self.outside]
        return [*(f"daddr {address}" for address in self.outgoing), *(f"saddr {address}" for address in incoming)]

    def losses(self, ends: Ends) -> tuple[str, str]:
        """Rules for what comes in and for what goes out."""
        share = self.shape["loss"]
        outgoing = [address for address in self.outgoing if address == self.outside]
        incoming = _by_chance(ends, "saddr", self.incoming, share, "drop")
        return incoming, _by_chance(ends, "daddr", outgoing, share, "drop")

    def doubles(self, ends: Ends) -> tuple[str, str]:
        share = self.shape["duplicate"]
        incoming = [address for address in self.incoming if address == self.outside]
        # The copy passes the rules as well: it is told by the mark that it has of the first.
        double = f"meta mark set {_MARK} dup to ip daddr"
        return (
            _by_chance(ends, "saddr", incoming, share, double, f"meta mark != {_MARK} "),
            _by_chance(ends, "daddr", self.outgoing, share, double, f"meta mark != {_MARK} "),
        )


class Shaping:
    """Of one machine, by key: it outlives the machine's network namespaces. Counters count on."""

    def __init__(self, make_queues: Callable[[int], Queues] = Queues) -> None:
        """make_queues: of a network namespace, by a descriptor of it."""
        self._make_queues = make_queues
        self._network: Network | None = None
        self._queues: Queues | None = None
        self._wanted: dict[str, Wanted] = {}
        self._tree: dict[str, Queue] | None = {}  # None: what there is is not known
        self._counted: dict[str, dict[str, Counter[str]]] = {}  # by key and end
        self._ruled: dict[str, Counter[tuple[str, str]]] = {}  # by key, what its rules' counters last said

    def plug_in(self, network: Network) -> None:
        """The machine is on, in a new namespace."""
        self._network, self._queues, self._tree = network, self._make_queues(network.namespace), {}
        for key in self._wanted:
            self._rule(key)
        self._queue()

    def unplug(self) -> None:
        """What has been counted is to be read now or never."""
        self._read()
        self._network = self._queues = None

    def clear_network(self, network: Network) -> None:
        """Of a machine whose network stays when it is switched off: until plug_in() it has no rules and queues."""
        for key in self._wanted:
            network.run("".join(NOTHING.format(family=family, key=key) for family in ("inet", "ip")))
        self._make_queues(network.namespace).clear()

    def shape(self, key: str, wanted: Wanted) -> None:
        """In place of what this key did before. key: letters, digits and hyphens."""
        self._read()
        self._counted.setdefault(key, {})
        self._wanted[key] = wanted
        self._rule(key)
        self._queue()

    def unshape(self, key: str) -> dict[str, dict[str, int]]:
        """By end, `saddr 10.0.0.1`, what was counted for this key. Safe to repeat."""
        try:
            self._read()
        finally:
            self._wanted.pop(key, None)
            self._rule(key)
            self._ruled.pop(key)
            self._queue()
        return {end: dict(counted) for end, counted in self._counted.pop(key, {}).items()}

    def clear(self) -> None:
        """Nothing is left of any key, but for its rules, which go with their table (Network.clear)."""
        for noted in (self._wanted, self._counted, self._ruled):
            noted.clear()
        if self._queues:
            self._tree = None
            self._queues.clear()
        self._tree = {}

    def _rule(self, key: str) -> None:
        self._ruled[key] = Counter()
        if self._network is None:
            return
        commands = "".join(NOTHING.format(family=family, key=key) for family in ("inet", "ip"))
        if wanted := self._wanted.get(key):
            ends = self._network.ends
            for family, (incoming, outgoing) in (("inet", wanted.losses(ends)), ("ip", wanted.doubles(ends))):
                if incoming or outgoing:
                    commands += self._network.chains(family, key, incoming, outgoing)
        self._network.run(commands)

    def _queue(self) -> None:
        """Only if something changes: whoever waits in a queue that is built anew waits in vain."""
        tree: dict[str, Queue] = {}
        for wanted in self._wanted.values():
            for end in wanted.queued:
                tree[end] = tree.get(end, Queue()) + wanted.queue
        if self._queues and tree != self._tree:
            self._tree = None  # if this fails, the next tries again
            self._queues.build(tree)
            self._tree = tree

    def _read(self) -> None:
        """What two keys do to a packet together counts for both."""
        if self._network is None or self._queues is None:
            return
        passed = self._queues.passed()
        for key, wanted in self._wanted.items():
            counted = self._counted[key]
            for end in wanted.queued:
                found = Counter({_QUEUED[what]: count for what, count in passed.get(end, {}).items()})
                counted.setdefault(end, Counter()).update(found)
            for family, what in (("inet", "packets_dropped"), ("ip", "packets_duplicated")):
                for end, packets in self._network.packets(family, (f"{key}-in", f"{key}-out")).items():
                    counted.setdefault(end, Counter())[what] += packets - self._ruled[key][family, end]
                    self._ruled[key][family, end] = packets


def _by_chance(
    ends: Ends, field: str, addresses: Collection[str], share: float, verdict: str, match: str = ""
) -> str:  # fmt: skip
    if not share:
        return ""
    chance = f"numgen random mod {_CHANCE} < {round(share * _CHANCE)}" if share < 1 else ""
    rules = (ends.rule(field, address, verdict, before=match, chance=chance) for address in sorted(addresses))
    return "".join(rules)
