"""One target in one process: with Atheris if it is there, else with damage to the seeds at random.

Prints `stat::` lines as libFuzzer does. A finding ends the process, and its input is in `findings/`.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import logging
import mmap
import resource
import sys
import time
import traceback
from pathlib import Path
from random import Random

from .mutation import WORDS, mutated
from .target import Finding, Target

#: Beside the findings: the input that is being tried, with its length in 4 bytes before it.
CURRENT = "current"
#: The exit code when there was a finding and its input is kept. (libFuzzer's; an abort has another.)
FOUND = 77
#: Of an input, in bytes. Larger ones find nothing more and take longer.
MAX_INPUT = 4096
#: What handling one input may take, in seconds of processor time.
MAX_SECONDS = 1.0
#: What all inputs together may add to the process' memory, in bytes: nothing is kept, so any growth is one input's.
MAX_MEMORY = 192 << 20


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("target")
    parser.add_argument("--input", type=Path)
    parser.add_argument("--seconds", type=int)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--kept", type=Path)
    options = parser.parse_args()
    logging.disable()
    if options.input is not None:
        _limited(_target(options.target), options.input.read_bytes())
        print("no finding")
        return 0
    if importlib.util.find_spec("atheris") is None:
        return _without_coverage(_target(options.target), options.seconds, options.seed, options.kept / "findings")
    _with_coverage(options.target, options.seconds, options.seed, options.kept)
    return 0


def _target(name: str) -> Target:
    from .targets import TARGETS

    return TARGETS[name]


def _limited(target: Target, data: bytes) -> None:
    started = time.thread_time()
    target.run(data)
    took = time.thread_time() - started
    if took > MAX_SECONDS:
        raise Finding(f"{len(data)} bytes have taken {took:.1f} s")


def _limit_memory() -> None:
    """From now on. What asks for more gets a MemoryError, or aborts the process."""
    size = int(Path("/proc/self/statm").read_text().split()[0]) * mmap.PAGESIZE
    resource.setrlimit(resource.RLIMIT_AS, (size + MAX_MEMORY, resource.RLIM_INFINITY))


def _with_coverage(name: str, seconds: int, seed: int, kept: Path) -> None:
    import atheris

    with atheris.instrument_imports(include=["cluster_image"], enable_loader_override=False):
        target = _target(name)
    corpus = kept / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    for data in target.seeds(Random(seed)):
        (corpus / hashlib.sha1(data).hexdigest()).write_bytes(data)
    words = kept / "words"
    words.write_text("".join('"' + "".join(f"\\x{byte:02x}" for byte in word) + '"\n' for word in WORDS))
    for data in list(target.seeds(Random(seed)))[:20]:
        target.run(data)  # so that what is loaded once does not count
    limited = False

    def one_input(data: bytes) -> None:
        nonlocal limited
        if not limited:
            limited = True
            _limit_memory()
        _limited(target, data)

    atheris.Setup(
        [
            sys.argv[0],
            str(corpus),
            f"-artifact_prefix={kept}/findings/",
            f"-dict={words}",
            f"-max_len={MAX_INPUT}",
            f"-max_total_time={seconds}",
            f"-seed={seed % (1 << 32)}",
            "-timeout=20",
            "-rss_limit_mb=1024",
            "-print_final_stats=1",
        ],
        one_input,
    )
    atheris.Fuzz()


def _without_coverage(target: Target, seconds: int, seed: int, findings: Path) -> int:
    random = Random(seed)
    seeds = list(target.seeds(random))
    for data in seeds:
        _limited(target, data)
    _limit_memory()
    path = findings.parent / CURRENT
    path.write_bytes(bytes(4 + MAX_INPUT))
    count, until = 0, time.monotonic() + seconds
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as current:  # survives an abort
        while time.monotonic() < until:
            data = mutated(random, seeds)[:MAX_INPUT]
            current[: 4 + len(data)] = len(data).to_bytes(4, "big") + data
            try:
                _limited(target, data)
            except BaseException:
                traceback.print_exc()
                (findings / f"crash-{hashlib.sha1(data).hexdigest()}").write_bytes(data)
                return FOUND
            count += 1
    print(f"stat::number_of_executed_units: {count}")
    print(f"stat::peak_rss_mb: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
