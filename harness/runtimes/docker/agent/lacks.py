"""What this machine lacks of harness.cluster.NEEDS, found out by trying. `chaos doctor` asks the same."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Collection, Mapping
from typing import Final


def lacks(needs: Collection[str]) -> dict[str, str]:
    """By need: why there is none of it, as a clause. Nothing of what there is."""
    found = {}
    for need in needs:
        if need in _TRIALS and (reason := _TRIALS[need]()) is not None:
            found[need] = reason
    return found


def _netem() -> str | None:
    added = subprocess.run(
        ["tc", "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return None if added.returncode == 0 else f"this kernel has no netem ({added.stderr.strip().splitlines()[0]})"


_TRIALS: Final[Mapping[str, Callable[[], str | None]]] = {"netem": _netem}
