"""`python -m harness` is `chaos`."""

from __future__ import annotations

import atexit
import os
import sys

from harness.errors import ended_by_ctrl_c


def main() -> None:
    """What harness.cli.app.main() does, also while that is imported: interrupted, it says so and no more."""
    # kio brings hypothesis along, which would leave a folder where `chaos` is called.
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    os.environ.setdefault("HYPOTHESIS_STORAGE_DIRECTORY", os.path.join(cache, "chaos", "hypothesis"))
    ending = _Ending()
    atexit.register(ending.at_exit)  # the first to be registered is the last to be called
    try:
        with ended_by_ctrl_c():
            from harness.cli.app import main as run
        run()
    except SystemExit as exit_:
        ending.code = exit_.code
        raise


class _Ending:
    """Ends the process with its exit code once all is done that is to be done at exit, before the interpreter is taken
    down: a thread of Arrow's that lets go of something of Python's just then aborts the process, and its exit status is
    134 then and not the verdict's (apache/arrow issue 34314)."""

    code: object = None

    def at_exit(self) -> None:
        if not isinstance(self.code, int):
            return
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        except (OSError, ValueError):  # the interpreter tells of that
            return
        os._exit(self.code & 0xFF)


if __name__ == "__main__":
    main()
