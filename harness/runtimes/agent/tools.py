"""Programs of the agent's own image (tc, ip), run in a node's network namespace.

The agent itself lives in the engine's mount namespace, where there need be none of them.
"""

from __future__ import annotations

import functools
import os
import subprocess
from collections.abc import Sequence
from typing import NamedTuple

from . import kernel


class _Namespaces(NamedTuple):
    """Descriptors."""

    mounts: int
    network: int


@functools.cache
def keep_own_namespaces() -> _Namespaces:
    """To be called first while the agent is still in them."""
    return _Namespaces(*(os.open(f"/proc/thread-self/ns/{kind}", os.O_RDONLY) for kind in ("mnt", "net")))


def run(command: Sequence[str], *, network: int | None = None, apart: bool = False, lines: Sequence[str] = ()) -> str:
    """What it prints. network: a descriptor of the namespace to run in, the agent's own if None. apart: in a new one,
    that goes with it. lines: its standard input. Raises OSError with the first line of what it complains about."""
    own = keep_own_namespaces()

    def enter() -> None:  # the child has a single thread, so that it may change its mount namespace
        kernel.enter_mount_namespace(own.mounts)
        if apart:
            kernel.leave_network_namespace()
        else:
            kernel.enter_network_namespace(own.network if network is None else network)

    text = "".join(f"{line}\n" for line in lines)
    try:
        done = subprocess.run(command, input=text, preexec_fn=enter, capture_output=True, text=True, check=False)
    except subprocess.SubprocessError as error:  # whatever enter() raised
        raise OSError(f"{command[0]}: its namespaces are refused") from error
    if done.returncode != 0:
        complaint = done.stderr.strip().splitlines()
        raise OSError(f"{command[0]}: {complaint[0] if complaint else f'exit status {done.returncode}'}")
    return done.stdout
