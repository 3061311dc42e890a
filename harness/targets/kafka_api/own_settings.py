"""The settings of the clusters of this repository, for --set: which of them a user may give."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Protocol

from harness.errors import BadArguments


class Setting(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def default(self) -> str | None: ...

    @property
    def valid(self) -> str: ...

    @property
    def help(self) -> str: ...


class OwnSettings:
    """known: of the nodes of a target. read: takes a name and a value, and raises a ValueError if that is none.
    identity: those that the harness gives to each node. flags: those that an option of `chaos run` stands for."""

    def __init__(
        self,
        known: Iterable[Setting],
        read: Callable[[str, str], object],
        identity: Collection[str],
        flags: Mapping[str, str],
    ) -> None:
        self._known = list(known)
        self._read = read
        self._identity = identity
        self._flags = flags

    def check(self, name: str, value: str) -> None:
        """Raises BadArguments."""
        if name in self._identity:
            raise BadArguments(f"--set {name} is not possible: it is given to each node by the harness")
        if name in self._flags:
            raise BadArguments(f"--set {name} would contradict {self._flags[name]}; use {self._flags[name]} {value}")
        try:
            self._read(name, value)
        except ValueError as error:
            raise BadArguments(f"--set: {error}") from None

    def listed(self) -> Sequence[tuple[str, str, str, str]]:
        """See harness.targets.target.Target.settings()."""
        known = (each for each in self._known if each.name not in self._identity)
        return [(each.name, each.default or "", each.valid, each.help) for each in known]
