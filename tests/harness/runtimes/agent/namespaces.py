"""Runs what changes a machine where nobody sees it: in a process with mounts and a network of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from tests import ROOT

#: Cgroups have no namespace in which they could be made: this machine's are left alone.
_BEGIN: Final = """
import json, os, signal, sys, time
from contextlib import suppress
from pathlib import Path
from harness.runtimes.agent import kernel, tools
from harness.runtimes.agent.host import __main__ as host, cgroups, folder as run_folder, guard, holding, undo
kernel.leave_namespaces()
tools.keep_own_namespaces()
kernel.mount_with("tmpfs", "/run", "tmpfs", 0, "size=1m")
cgroups.all_of_ours = list
"""


def apart(program: str, *arguments: object) -> str:
    """What a Python program prints, as root, once it is apart."""
    command = [sys.executable, "-c", _BEGIN + program, *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def configuration(data_directory: Path, **others: Any) -> dict[str, Any]:
    """Of an agent: see guard."""
    return {
        "run": "r", "node": "broker-1", "holder": {"run": "r", "who": "a test"}, "data_directory": str(data_directory),
        "file_system": "ext4", "size": 32 << 20, "device": "", "node_user": 10001, "rescue_after_s": 60.0,
        "own": "10.0.0.1", "files": {}, "configuration": "", "mounts": {}, "clock": False, "may_reboot": False,
        "trigger": "/dev/null", "resumes": False, "may_set_clock": False, "clock_stand_in": "",
        "ends": {"nodes": ["10.0.0.1", "10.0.0.2"], "ports": [9092], "ssh_ports": [22]},
        "launch": {"command": ["true"], "tmp_bytes": 1 << 20, "largest_file": 1 << 20, "environment": {}},
        **others,
    }  # fmt: skip
