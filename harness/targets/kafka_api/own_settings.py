"""The settings of the clusters of this repository, for --set: which of them a user may give."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from cluster_image.config import ConfigError, Setting, read_setting
from harness.errors import BadArguments


class OwnSettings:
    """known: of the nodes of a target. identity: those that the harness gives to each node. flags: those that an option
    of `chaos run` stands for."""

    def __init__(self, known: Mapping[str, Setting], identity: Collection[str], flags: Mapping[str, str]) -> None:
        self._known = known
        self._identity = identity
        self._flags = flags

    def check(self, name: str, value: str) -> None:
        """Raises BadArguments."""
        if name in self._identity:
            raise BadArguments(f"--set {name} is not possible: it is given to each node by the harness")
        if name in self._flags:
            raise BadArguments(f"--set {name} would contradict {self._flags[name]}; use {self._flags[name]} {value}")
        try:
            read_setting(name, value, self._known)
        except ConfigError as error:
            raise BadArguments(f"--set: {error}") from None

    def listed(self) -> Sequence[tuple[str, str, str, str]]:
        """See harness.targets.target.Target.settings()."""
        known = (each for each in self._known.values() if each.name not in self._identity)
        return [(each.name, each.default or "", each.valid, each.help) for each in known]
