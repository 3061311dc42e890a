"""What is printed goes nowhere any more: no exit code that means something else, and no traceback."""

from __future__ import annotations

import subprocess
import sys

from tests import ROOT

COMMAND = [sys.executable, "-m", "harness", "list", "settings"]


def test_nobody_reads_on() -> None:
    listing = subprocess.Popen(COMMAND, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert listing.stdout is not None and listing.stderr is not None
    listing.stdout.close()
    said = listing.stderr.read()
    assert listing.wait(60) == 255 and "Traceback" not in said and "internal error" not in said, said


def test_there_is_no_room_for_it() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(COMMAND, cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 255 and done.stderr == "chaos: No space left on device\n"
