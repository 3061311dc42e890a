"""`python -m harness` is `chaos`."""

from __future__ import annotations

import sys


def main() -> None:
    """What harness.cli.main() does, also while that is imported: interrupted, it says so and no more."""
    try:
        from harness.cli import main as run
    except KeyboardInterrupt:
        print("chaos: stopped", file=sys.stderr)
        sys.exit(255)
    run()


if __name__ == "__main__":
    main()
