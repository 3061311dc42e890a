"""One operation of a process, on its disk or of its sending, in which something strikes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

#: Operations (Mount.before) that change what is on the disk, or make it durable.
_SYNCS: Final = frozenset({"sync", "sync_directory"})
_WRITES: Final = frozenset({"create", "append", "truncate", "make_directory", "remove", "remove_directory", "rename"})
#: In the middle of an append.
HALF: Final = "append half"
READ: Final = "read"
REQUEST: Final = "request"
ANSWER: Final = "answer"

#: By what strikes, the operations that it may strike: the process or the machine goes just before one.
OPERATIONS: Final[Mapping[str, frozenset[str]]] = {
    "power": _WRITES | _SYNCS | {HALF},
    "kill": _WRITES | _SYNCS | {HALF},
    "error": _WRITES | {READ},
    "read": frozenset({READ}),
    "write": _WRITES,
    "short-write": frozenset({HALF}),
    "fsync": _SYNCS,
    "reset": frozenset({REQUEST, ANSWER}),
    "late": frozenset({REQUEST, ANSWER}),
}
#: Those that strike messages.
OF_MESSAGES: Final = frozenset({"reset", "late"})


class Strike:
    """what: of OPERATIONS. number: which of these operations, from 1 on; 0: none, they are only counted. counted: how
    many there were; struck: the one that was, its word and its path, or the name of a message."""

    def __init__(self, what: str, number: int) -> None:
        self.what = what
        self.counted = 0
        self.struck: tuple[str, str] | None = None
        self._number = number
        self._operations = OPERATIONS[what]

    def hits(self, operation: str, path: str) -> bool:
        """Is told of each operation that is about to happen: is it this one?"""
        if self.struck is not None or operation not in self._operations:
            return False
        self.counted += 1
        if self.counted != self._number:
            return False
        self.struck = operation, path
        return True

    def evidence(self) -> dict[str, Any]:
        """counted_operations; struck {operation, path, number}, if one was."""
        counted: dict[str, Any] = {"counted_operations": self.counted}
        if self.struck is None:
            return counted
        operation, path = self.struck
        return counted | {"struck": {"operation": operation, "path": path, "number": self.counted}}
