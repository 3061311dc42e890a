"""`python -m harness` is `chaos`."""

from harness.cli import main

main()
