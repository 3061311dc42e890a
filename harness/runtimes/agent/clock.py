"""Sets a node's wall clock wrong with libfaketime: the files that tell the node's processes the time, and a test
whether this works on this machine.

The harness uses this too (../clock.py). What every process must be told is in one directory, FOLDER, of one clock:

offset    "+3600.000000 x1.100000000": what clocks show is START + offset + (the true time - START) * rate
start     START, in libfaketime's memory shared by processes; each would otherwise count from its own start, and a clock
          that is fast or slow would jump whenever a process is started
sem.start the semaphore that goes with it
"""

from __future__ import annotations

import inspect
import os
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from . import tools

#: As base.Dockerfile has it made, by clock_library.py.
LIBRARY: Final = "/opt/clock/libfaketime.so"
#: Not ours to choose: libc looks for shared memory and named semaphores there.
FOLDER: Final = "/dev/shm"
ENVIRONMENT: Final = {
    "LD_PRELOAD": LIBRARY,
    "FAKETIME_TIMESTAMP_FILE": f"{FOLDER}/offset",
    "FAKETIME_SHARED": "/start /start",
    "FAKETIME_NO_CACHE": "1",  # a jump shows at the next look
    "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    "NO_FAKE_STAT": "1",  # the times of files stay those of their file system
}
_FILES: Final = ("offset", "start", "sem.start")
_SEMAPHORE = struct.pack("<4Q", 1000, 0, 0, 0)  # glibc's sem_t, of so high a value that no killed process blocks others
_HOUR_S = 3600.0
_SLEEP_S = 0.01
_LOOK = f"import time; time.sleep({_SLEEP_S}); print(time.time(), time.monotonic())"


def make(folder: Path, start: int) -> None:
    """A clock that is right. start: seconds since 1970, by now or earlier."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o755)
    for name, content in {
        "sem.start": _SEMAPHORE,
        "start": struct.pack("<QQ8q", 0, 0, start, *[0] * 7),  # struct ft_shared_s: the time of CLOCK_REALTIME first
    }.items():
        (folder / name).write_bytes(content)
        (folder / name).chmod(0o666)  # mapped for writing by the node's user, who writes nothing
    write(folder, 0.0, 0.0)


def write(folder: Path, offset_s: float, drift: float) -> None:
    """drift: seconds gained a second. A reader finds the old line or the new one."""
    new = folder / "offset.new"
    new.write_text(f"{offset_s:+.6f} x{1 + drift:.9f}\n")
    new.chmod(0o644)
    new.rename(folder / "offset")


def read(folder: Path) -> tuple[float, float]:
    """As write() was told."""
    offset, rate = (folder / "offset").read_text().split()
    return float(offset), float(rate.removeprefix("x")) - 1


def wall_minus_monotonic(wall: Callable[[], float] = time.time) -> float:
    """In seconds. Of the two clocks at one moment, as near as several tries come to it."""
    found = []
    for _ in range(5):
        before, now, after = time.monotonic(), wall(), time.monotonic()
        found.append((after - before, now - (before + after) / 2))
    return min(found)[1]


#: A program that prints the same elsewhere. Monotonic time is the whole machine's, so that the difference of what two
#: processes print is that of their wall clocks, however long it takes to ask.
ASK_IT: Final = (
    "from __future__ import annotations\n"
    f"import time\n{inspect.getsource(wall_minus_monotonic)}\nprint(wall_minus_monotonic())"
)


def lacking() -> str | None:
    """Why there are no faults of clocks here, as a clause. By trying, in the agent's own container."""
    try:
        return tools.run([sys.executable, "-m", f"{__package__}.clock"]).strip() or None
    except OSError as error:
        return f"clocks cannot be set apart ({error})"


def _try() -> str:
    """A process' clock is set an hour ahead: what is wrong with it; empty if all is well."""
    if not Path(LIBRARY).exists():
        return "the base image has no libfaketime"
    folder = Path(FOLDER)
    before, began = time.time(), time.monotonic()
    try:
        make(folder, int(before))
        write(folder, _HOUR_S, 0.0)
        command = [sys.executable, "-c", _LOOK]
        seen = subprocess.run(command, env=os.environ | ENVIRONMENT, capture_output=True, text=True, check=False)
        after, ended = time.time(), time.monotonic()
    finally:
        for name in _FILES:
            (folder / name).unlink(missing_ok=True)
    if seen.returncode != 0:
        complaint = seen.stderr.strip().splitlines()
        return f"a process with libfaketime fails ({complaint[-1] if complaint else seen.returncode})"
    wall, monotonic = map(float, seen.stdout.split())
    if not before + _HOUR_S <= wall <= after + _HOUR_S:
        return "libfaketime does not set the clock"
    return "" if began <= monotonic <= ended else "libfaketime does not leave monotonic time alone"


if __name__ == "__main__":
    print(_try())
