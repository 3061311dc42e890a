"""`python -m harness` is `chaos`."""

from __future__ import annotations

import sys


def main() -> None:
    """What harness.cli.app.main() does, also while that is imported: interrupted, it says so and no more.

    `chaos check` is asked many times for little, and needs no cluster: it comes without what the others import.
    """
    try:
        if sys.argv[1:2] == ["check"]:
            from harness.cli.check import main as run
        else:
            from harness.cli.app import main as run
    except KeyboardInterrupt:
        print("chaos: stopped", file=sys.stderr)
        sys.exit(255)
    run()


if __name__ == "__main__":
    main()
