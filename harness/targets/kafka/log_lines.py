"""What a node's log says of its end."""

from __future__ import annotations

import re
from typing import Final

#: As Java prints an exception that nobody caught, or the logger one that ends the process.
_EXCEPTION: Final = re.compile(
    r"^(?:Exception in thread \"[^\"]*\" |Caused by: )?(?:[a-z_]\w*\.)+(\w*(?:Exception|Error)): (.+)$"
)
_OURS: Final = re.compile(r"^chaos: (.+)$")
_SEVERE: Final = re.compile(r"^\[[^\]]*\] (?:ERROR|FATAL) (.+?)(?: \([\w.$]+\))?$")


def why_ended(text: str) -> str:
    """As a clause; of a log that has no error, the last line."""
    severe = exception = last = ""
    for line in filter(str.strip, text.splitlines()):
        last = line.strip()
        if found := _OURS.match(line):
            return found[1]
        if found := _EXCEPTION.match(line):
            exception = f"{found[1]}: {found[2]}"
        elif found := _SEVERE.match(line):
            severe, exception = found[1], ""
    return (exception or severe or last).rstrip(".")
