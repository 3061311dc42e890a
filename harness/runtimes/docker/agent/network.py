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

from . import kernel

_OUTPUT_JSON = 1 << 4
_PARTITION = """
table inet chaos
delete table inet chaos
table inet chaos {{
  chain input {{ type filter hook input priority 0; policy accept; {rules} }}
}}
"""
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


class Network:
    """The network namespace of a process."""

    def __init__(self, pid: int) -> None:
        self._namespace = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)

    def close(self) -> None:
        os.close(self._namespace)

    def drop_from(self, addresses: Collection[str]) -> None:
        """Replaces every rule; counters start at 0. No addresses: everything passes."""
        rules = "".join(f"ip saddr {ipaddress.IPv4Address(address)} counter drop; " for address in sorted(addresses))
        self._run(_PARTITION.format(rules=rules))

    def unplug(self) -> None:
        """Nothing comes or goes any more, the farewells of a killed process included."""
        kernel.enter_network_namespace(self._namespace)
        kernel.take_interfaces_down()

    def packets_dropped(self) -> int:
        """By the rules of drop_from() since it was called."""
        listing = json.loads(self._run("list ruleset") or '{"nftables": []}')
        return sum(
            statement["counter"]["packets"]
            for item in listing["nftables"]
            for statement in item.get("rule", {}).get("expr", ())
            if "counter" in statement
        )

    def _run(self, commands: str) -> str:
        nft = _library()
        kernel.enter_network_namespace(self._namespace)
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
