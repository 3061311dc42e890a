"""Of 003, the high-level design: replica placement, and brokers that come and go. Of replication it says what 000, 002
and 004 say more exactly: their rules are dropped in the same way."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from . import Drop, Returns, Text, d000, d001, d002, d004

_PAIRS: Final = "placement/pairs.py"
_RULES: Final = "kraft/controller/rules.py"

#: By this document's row, the row of another that states the same rule.
_STATED_AS: Final[Mapping[str, str]] = {
    "003-sync-1": "000-2.9-3",
    "003-sync-2": "000-2.8-1",
    "003-sync-3": "000-2.4.2-1",
    "003-sync-4": "000-2.2.2-1",
    "003-sync-5": "000-2.2.2-2",
    "003-sync-6": "002-5-3",
    "003-sync-7": "000-2.2-1",
    "003-sync-8": "000-2.2.2-6",
    "003-sync-9": "000-2.4.1-1",
    "003-sync-10": "000-2.7-5",
    "003-sync-11": "000-2.2.2-12",
    "003-sync-12": "000-2.7-12",
    "003-sync-13": "000-2.10-1",
    "003-sync-14": "000-2.7-1",
    "003-follower-1": "000-2.9-5",
    "003-follower-2": "004-loss-2",
    "003-follower-3": "000-2.9-7",
    "003-leader-1": "000-2.6-4",
    "003-leader-2": "000-2.4-3",
    "003-leader-3": "000-2.4.1-2",
    "003-leader-4": "000-2.8-8",
    "003-leader-5": "000-2.10.1-4",
    "003-leader-6": "000-2.10-2",
    "003-async-1": "000-2.5-2",
    "003-older-1": "001-commit-2",
    "003-older-2": "001-roles-1",
    "003-older-4": "001-roles-7",
    "003-older-5": "001-commit-10",
    "003-older-6": "001-commit-1",
    "003-older-7": "001-commit-2",
    "003-older-8": "001-roles-4",
}
_OTHERS: Final[Mapping[str, Drop]] = {**d000.DROPS, **d001.DROPS, **d002.DROPS, **d004.DROPS}

DROPS: Final[Mapping[str, Drop]] = {
    "003-placement-2": Text(_PAIRS, "least = min(map(", "least = max(map("),
    "003-placement-3": Text(
        _PAIRS, "self._topic.leaders[broker], self._cluster.leaders[broker]", "self._topic.leaders[broker], 0"
    ),
    "003-placement-4": Text("kraft/controller/topics.py", "leader=isr[0]", "leader=isr[-1]"),
    "003-placement-5": Text(_PAIRS, "if count == fewest]", "if True]"),
    "003-placement-6": Text("placement/rules.py", " if broker not in replicas]", "]"),
    "003-placement-7": Text(
        "kraft/controller/placement.py",
        "active, fenced = [b for b in registered if b.active], [b for b in registered if not b.active]",
        "active, fenced = registered, []",
    ),
    "003-placement-8": Returns("placement/racks.py", "natural_order", "((1, 0, rack),)"),
    "003-placement-9": Returns("placement/spread.py", "warnings", "[]"),
    "003-placement-10": Text("placement/rules.py", " if in_rack[rack_of[broker]] == fewest]", "]"),
    "003-add-1": Text("tools/balance.py", "    if not balance:\n", "    if True:\n"),
    "003-add-2": Returns("placement/exchange.py", "Exchange.improve", "None"),
    "003-add-3": Text(
        "placement/shedding.py", "sorted(layout.held[b], key=lambda p: layout.weights[p])", "layout.held[b]"
    ),
    "003-add-4": Text("placement/leaders.py", "    _balance(lists, brokers)\n", ""),
    "003-add-6": Returns("placement/swaps.py", "swap_for_leaders", "False"),
    "003-add-5": Text("placement/leaders.py", "    _spread_takeovers(lists)\n", ""),
    "003-remove-1": Text(
        "tools/balance.py", "others = state.brokers.keys() - {broker}", "others = state.brokers.keys()"
    ),
    "003-remove-2": Text(_RULES, "    if holds:\n", "    if False:\n"),
    "003-remove-3": Text(_RULES, "if not registration.fenced or session_alive:", "if False:"),
    "003-remove-4": Text("kraft/metadata/image.py", "del self.brokers[record.broker_id]", "pass"),
    **{row: _OTHERS[other] for row, other in _STATED_AS.items()},
}
