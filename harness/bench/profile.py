"""Where running Python processes spend their time, sampled from outside by py-spy."""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

TOLD: Final = 12


async def of_processes(pids: Sequence[int], seconds: int) -> str:
    """The functions with the largest shares of the time that the processes were busy, their own time each; or a
    sentence why that is not known."""
    beside = Path(sys.executable).with_name("py-spy")
    tool = str(beside) if beside.exists() else shutil.which("py-spy")
    if tool is None:
        return "not known: py-spy is not installed"
    own: Counter[str] = Counter()
    with TemporaryDirectory(prefix="chaos-profile-") as directory:
        files = [Path(directory, f"{pid}.txt") for pid in pids]
        commands = [
            [tool, "record", "--pid", str(pid), "--duration", str(seconds), "--format", "raw", "--output", str(file)]
            for pid, file in zip(pids, files, strict=True)
        ]
        processes = [
            await asyncio.create_subprocess_exec(
                *command, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
            )
            for command in commands
        ]
        for process in processes:
            _, errors = await process.communicate()
            if process.returncode != 0:
                return f"not known: {errors.decode(errors='replace').strip().splitlines()[-1]}"
        for file in files:
            for line in file.read_text().splitlines():
                stack, _, samples = line.rpartition(" ")
                own[_function(stack.rpartition(";")[2])] += int(samples)
    total = own.total() or 1
    return ", ".join(f"{name} {count / total:.0%}" for name, count in own.most_common(TOLD))


def _function(frame: str) -> str:
    """`append (cluster_image/storage/log.py:160)` as `append (storage/log.py)`."""
    name, _, place = frame.partition(" (")
    if name == "Runner.run":
        return "event loop and sockets (uvloop)"
    file = place.rpartition(":")[0]
    return f"{name} ({'/'.join(file.split('/')[-2:])})"
