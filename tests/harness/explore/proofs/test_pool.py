"""Processes for proofs end with the process that they work for, theirs included, however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

_NESTED = """
import os, sys, time
from harness.explore.proofs.pool import processes
def inner():
    print(os.getpid(), flush=True); time.sleep(60)
def outer():
    with processes(1) as pool:
        print(os.getpid(), flush=True); pool.submit(inner).result()
if __name__ == "__main__":
    with processes(1) as pool:
        pool.submit(outer).result()
"""


_INTERRUPTED = """
import time
from harness.explore.proofs.pool import in_order, processes
if __name__ == "__main__":
    try:
        with processes(2) as pool:
            for done, _ in enumerate(in_order(pool, time.sleep, [0.05] * 200)):
                if done == 2:
                    raise KeyboardInterrupt
    except KeyboardInterrupt:
        print("over")
"""


def _there(pid: int) -> bool:
    with suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


def test_workers_and_theirs_are_gone_with_a_process_that_is_killed(tmp_path: Path) -> None:
    script = tmp_path / "nested.py"
    script.write_text(_NESTED)
    environment = {**os.environ, "PYTHONPATH": os.getcwd()}
    with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        pids = [int(process.stdout.readline()) for _ in range(2)]
        assert all(map(_there, pids))
        process.send_signal(signal.SIGKILL)
        process.wait()
    until = time.monotonic() + 10
    while any(map(_there, pids)) and time.monotonic() < until:
        time.sleep(0.05)
    assert not any(map(_there, pids))


def test_what_ends_in_the_midst_ends_at_once_and_without_a_word(tmp_path: Path) -> None:
    script = tmp_path / "interrupted.py"
    script.write_text(_INTERRUPTED)
    environment = {**os.environ, "PYTHONPATH": os.getcwd()}
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, env=environment, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "over\n", "")
