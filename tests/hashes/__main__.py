"""python -m tests.hashes: see the package."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from difflib import unified_diff
from pathlib import Path
from typing import Final

from . import commands, saved, traces

HERE: Final = Path(__file__).parent


def main(arguments: Sequence[str]) -> int:
    """0: nothing differs, or it was stored; 1: something does; 2: bad arguments."""
    if list(arguments) not in ([], ["--write"]):
        print("usage: python -m tests.hashes [--write]", file=sys.stderr)
        return 2
    differ = 0
    for path, text in _found():
        stored = HERE / path
        if arguments:
            stored.parent.mkdir(exist_ok=True)
            stored.write_text(text)
            continue
        before = stored.read_text() if stored.exists() else ""
        if before != text:
            differ += 1
            print(*unified_diff(before.splitlines(), text.splitlines(), f"{path} stored", f"{path} now", "", "", 1, ""),
                  sep="\n")  # fmt: skip
    print("stored" if arguments else f"{differ} differ" if differ else "nothing differs")
    return 1 if differ else 0


def _found() -> Iterator[tuple[str, str]]:
    """Paths below this directory, and what belongs there."""
    with tempfile.TemporaryDirectory() as scratch:
        yield from ((f"commands/{name}.txt", text) for name, text in commands.texts(Path(scratch)))
    yield from ((f"saved/{name}.json", text) for name, text in saved.verdicts(HERE / "saved"))
    yield "traces.txt", "".join(f"{line}\n" for line in traces.lines())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
