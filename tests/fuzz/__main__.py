"""`python -m tests.fuzz`: every target for its share of the time, each in a process of its own. See __init__.py.

Exit code 0, or 1 if there is a finding: then where its input is, and how to try it again.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from .child import CURRENT, FOUND

#: Shares of the time: recovery and batches have the most ways to go, frames the fewest.
SHARES = {"requests": 4, "responses": 3, "frames": 1, "batches": 4, "snapshots": 2, "recovery": 6}
KEPT = Path(".fuzz")
#: What a child has to start and to stop, beyond its time.
_PATIENCE_SECONDS = 120


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__.partition("\n")[0])
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"of {', '.join(SHARES)} (default: all)")
    parser.add_argument("--seconds", type=int, default=1200, help="for all targets together (default: 1200)")
    parser.add_argument("--seed", type=int, help="of the fuzzer (default: the time)")
    parser.add_argument("--input", type=Path, metavar="FILE", help="try this input of the one target, and nothing else")
    options = parser.parse_args(arguments)
    names = options.targets or list(SHARES)
    if unknown := [name for name in names if name not in SHARES]:
        parser.error(f"there is no target {unknown[0]}; there are {', '.join(SHARES)}")
    if options.input is not None:
        if len(names) != 1:
            parser.error("--input is for one target")
        return _child(names[0], "--input", str(options.input)).wait()
    seed = options.seed if options.seed is not None else int(time.time())
    total = sum(SHARES[name] for name in names)
    print(f"fuzzing for {options.seconds} s, seed {seed}", flush=True)
    return max(_fuzz(name, max(options.seconds * SHARES[name] // total, 1), seed) for name in names)


def _fuzz(name: str, seconds: int, seed: int) -> int:
    findings = KEPT / name / "findings"
    findings.mkdir(parents=True, exist_ok=True)
    before = set(findings.iterdir())
    started = time.monotonic()
    child = _child(name, "--seconds", str(seconds), "--seed", str(seed), "--kept", str(KEPT / name), piped=True)
    try:
        output, _ = child.communicate(timeout=seconds + _PATIENCE_SECONDS)
    except subprocess.TimeoutExpired:
        child.kill()
        output, _ = child.communicate()
    took = time.monotonic() - started
    if child.returncode not in (0, FOUND) and (findings.parent / CURRENT).exists():
        current = (findings.parent / CURRENT).read_bytes()
        (findings / f"abort-{seed}").write_bytes(current[4 : 4 + int.from_bytes(current[:4], "big")])
    found = sorted(set(findings.iterdir()) - before)
    if child.returncode == 0 and not found:
        print(f"{name}: {_figure(output, 'number_of_executed_units'):,} inputs in {took:.0f} s, "
              f"{_figure(output, 'peak_rss_mb')} MB at most", flush=True)  # fmt: skip
        return 0
    print(output[-8000:])
    print(f"{name}: a finding after {took:.0f} s (exit code {child.returncode})")
    for path in found:
        print(f"  again: python -m tests.fuzz --input {path} {name}", flush=True)
    return 1


def _figure(output: str, name: str) -> int:
    match = re.search(rf"stat::{name}:\s*(\d+)", output)
    return int(match[1]) if match else 0


def _child(name: str, *arguments: str, piped: bool = False) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.fuzz.child", name, *arguments],
        stdout=subprocess.PIPE if piped else None, stderr=subprocess.STDOUT if piped else None, text=True,
        errors="replace",
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
