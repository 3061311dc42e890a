"""A node's network card: the network namespace that its process runs in.

A partition drops, through libnftables, what arrives from the other side, at both ends: each sees what it would see
of a broken cable. A machine without power has its cable pulled, which costs less than a rule and loses no less.
"""

from __future__ import annotations

import ctypes
import functools
import ipaddress
import json
import os
import threading
from collections.abc import Collection
from typing import Any

from .. import kernel

_OUTPUT_JSON = 1 << 4
#: A chain for each key and direction, so that partitions may overlap and each has counters of its own. Declared before
#: it is deleted, because a chain that is not there cannot be deleted. Those of `inet` lose packets, those of `ip`
#: double them (shaping.py).
NOTHING = """
table {family} chaos {{
  chain {key}-in {{ type filter hook input priority 0; policy accept; }}
  chain {key}-out {{ type filter hook output priority 0; policy accept; }}
}}
flush chain {family} chaos {key}-in
flush chain {family} chaos {key}-out
delete chain {family} chaos {key}-in
delete chain {family} chaos {key}-out
"""
_RULES = """
table {family} chaos {{
  chain {key}-in {{ type filter hook input priority 0; policy accept; {incoming} }}
  chain {key}-out {{ type filter hook output priority 0; policy accept; {outgoing} }}
}}
"""
#: A table that is not there cannot be deleted, either.
_CLEAR = "".join(f"table {family} chaos {{ }}\ndelete table {family} chaos\n" for family in ("inet", "ip"))
_ONE_AT_A_TIME = threading.Lock()  # libnftables is not documented to be thread-safe


def load_library() -> None:
    """Before the agent leaves its own mount namespace, where the library is."""
    _library()


@functools.cache
def _library() -> ctypes.CDLL:
    nft = ctypes.CDLL("libnftables.so.1")
    nft.nft_ctx_new.restype = ctypes.c_void_p
    nft.nft_ctx_get_output_buffer.restype = ctypes.c_char_p
    nft.nft_ctx_get_error_buffer.restype = ctypes.c_char_p
    return nft


class Ends:
    """How the other end of a link is told in a rule. field: saddr or daddr."""

    def escape(self, field: str) -> str:
        """Rules that come first in each chain of packets from there (saddr) or going there (daddr)."""
        return ""

    def rule(self, field: str, address: str, verdict: str, *, before: str = "", chance: str = "") -> str:
        """One with a counter."""
        return f"{before}ip {field} {ipaddress.IPv4Address(address)} {chance} counter {verdict}; "


class Network:
    """The network namespace of a process, 0 being our own; `namespace` is a descriptor of it."""

    def __init__(self, pid: int, ends: Ends | None = None) -> None:
        self.namespace = os.open(f"/proc/{pid or 'self'}/ns/net", os.O_RDONLY)
        self.ends = ends or Ends()
        self._entering = threading.Lock()

    def close(self) -> None:
        with self._entering:
            os.close(self.namespace)
            self.namespace = -1

    def enter(self) -> None:
        """The calling thread. Raises OSError once closed, by whichever thread: the descriptor may be another file."""
        with self._entering:
            kernel.enter_network_namespace(self.namespace)

    def block(self, key: str, incoming: Collection[str], outgoing: Collection[str]) -> None:
        """Drop what comes from some addresses and what goes to others, in place of what this key dropped before;
        counters start at 0. No addresses: nothing is left of the key. key: letters, digits and hyphens."""
        commands = NOTHING.format(family="inet", key=key)
        if incoming or outgoing:
            commands += self.chains("inet", key, self._drop("saddr", incoming), self._drop("daddr", outgoing))
        self.run(commands)

    def chains(self, family: str, key: str, incoming: str, outgoing: str) -> str:
        """Commands that add the two chains of a key with these rules."""
        return _RULES.format(
            family=family, key=key,
            incoming=self.ends.escape("saddr") + incoming, outgoing=self.ends.escape("daddr") + outgoing,
        )  # fmt: skip

    def clear(self) -> None:
        """Nothing is left of any key, nor of shaping.py's rules."""
        self.run(_CLEAR)

    def unplug(self) -> None:
        """Nothing comes or goes any more, the farewells of a killed process included."""
        self.enter()
        kernel.take_interfaces_down()

    def packets_dropped(self, key: str) -> dict[str, int]:
        """By the rules of block() since it was called for this key: `saddr 10.0.0.1` and `daddr 10.0.0.1`, packets."""
        return self.packets("inet", (f"{key}-in", f"{key}-out"))

    def packets(self, family: str, chains: Collection[str]) -> dict[str, int]:
        """By the counters of our rules in these chains, each of which names one address, or tells its end in a
        comment: `saddr 10.0.0.1`, packets."""
        found = {}
        for rule in self._rules():
            counters = [each["counter"] for each in rule["expr"] if "counter" in each]
            if counters and rule["family"] == family and rule["chain"] in chains:
                found[rule.get("comment") or _end_of(rule)] = int(counters[0]["packets"])
        return found

    def _drop(self, field: str, addresses: Collection[str]) -> str:
        return "".join(self.ends.rule(field, address, "drop") for address in sorted(addresses))

    def has_rules(self) -> bool:
        """Of any key."""
        return bool(self._rules())

    def _rules(self) -> list[dict[str, Any]]:
        return [item["rule"] for item in self._listed() if item.get("rule", {}).get("table") == "chaos"]

    def _listed(self) -> list[dict[str, Any]]:
        """All of the namespace, whoever's."""
        return list(json.loads(self.run("list ruleset") or '{"nftables": []}')["nftables"])

    def run(self, commands: str) -> str:
        """nftables' own language; the answer is JSON."""
        nft = _library()
        self.enter()
        with _ONE_AT_A_TIME:
            context = ctypes.c_void_p(nft.nft_ctx_new(0))
            try:
                nft.nft_ctx_buffer_output(context)
                nft.nft_ctx_buffer_error(context)
                nft.nft_ctx_output_set_flags(context, _OUTPUT_JSON)
                if nft.nft_run_cmd_from_buffer(context, commands.encode()) != 0:
                    message = (nft.nft_ctx_get_error_buffer(context) or b"").decode(errors="replace").strip()
                    raise OSError(f"nftables: {message.partition(chr(10))[0] or 'failed'}")
                return (nft.nft_ctx_get_output_buffer(context) or b"").decode()
            finally:
                nft.nft_ctx_free(context)


def _end_of(rule: dict[str, Any]) -> str:
    end = next(each["match"] for each in rule["expr"] if "payload" in each.get("match", {}).get("left", {}))
    return f"{end['left']['payload']['field']} {end['right']}"
