"""Small programs that a host's own Python runs, whatever is installed there: sent along as an argument, each alone.

They are to run on old Pythons too, as far as saying so.
"""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import Final

from harness.runtimes import agent

#: DATA_DIRECTORY, and on standard input a tar of the agent: facts about the machine as JSON, and what the agent's probe
#: found. Leaves nothing behind.
LOOK: Final = r"""
import glob, io, json, os, shutil, subprocess, sys, tarfile, tempfile
data = sys.argv[1]
os.environ["PATH"] = os.environ.get("PATH", "") + ":/usr/sbin:/sbin:/usr/bin:/bin"
def read(path):
    try:
        with open(path) as file: return file.read().strip()
    except OSError: return ""
def library(name):
    import ctypes
    try: ctypes.CDLL(name)
    except OSError as error: return str(error)
    return None
there = data
while not os.path.exists(there): there = os.path.dirname(there)
found = {
    "user": os.geteuid(), "python": list(sys.version_info[:3]),
    "free_bytes": shutil.disk_usage(there).free, "machine_id": read("/etc/machine-id"),
    "boot_id": read("/proc/sys/kernel/random/boot_id"),
    "tools": {name: bool(shutil.which(name)) for name in ("ip", "tc", "mkfs.ext4", "mkfs.xfs")},
    "libnftables": library("libnftables.so.1"),
    "libfaketime": any(glob.glob(place + "/faketime/libfaketimeMT.so.1") for place in ("/usr/lib*", "/usr/lib/*")),
}
packed = sys.stdin.buffer.read()
if packed and sys.version_info >= (3, 11) and os.geteuid() == 0:
    made = []
    path = data
    while not os.path.exists(path):
        made.append(path); path = os.path.dirname(path)
    home = tempfile.mkdtemp(prefix="chaos-probe-")
    try:
        os.makedirs(data, exist_ok=True)
        folder = tempfile.mkdtemp(prefix="chaos-probe-", dir=data)
        tarfile.open(fileobj=io.BytesIO(packed)).extractall(home)
        try:
            done = subprocess.run(
                [sys.executable, "-B", "-m", "agent", "probe-host", folder], cwd=home, stdout=subprocess.PIPE,
                stderr=subprocess.PIPE, timeout=25)
            if done.returncode == 0: found["tried"] = json.loads(done.stdout.decode())
            else: found["not_tried"] = (done.stderr.decode(errors="replace").splitlines() or ["it failed"])[-1].strip()
        finally: shutil.rmtree(folder, ignore_errors=True)
    except (OSError, ValueError, subprocess.SubprocessError) as error: found["not_tried"] = str(error)
    finally:
        shutil.rmtree(home, ignore_errors=True)
        for path in made:
            try: os.rmdir(path)
            except OSError: pass
print(json.dumps(found))
"""

#: SECONDS COMMAND ARGUMENT…, and on standard input a tar of the agent: what `agent.host` says to that command, from a
#: folder of its own, of which nothing stays.
AGENT: Final = r"""
import io, os, shutil, subprocess, sys, tarfile, tempfile
home = tempfile.mkdtemp(prefix="chaos-probe-")
try:
    tarfile.open(fileobj=io.BytesIO(sys.stdin.buffer.read())).extractall(home)
    command = [sys.executable, "-B", "-m", "agent.host", *sys.argv[2:]]
    environment = {**os.environ, "PYTHONPATH": home}
    sys.exit(subprocess.run(command, cwd=home, env=environment, timeout=float(sys.argv[1])).returncode)
finally: shutil.rmtree(home, ignore_errors=True)
"""

#: For each line that comes in, the host's clocks: CLOCK_REALTIME and CLOCK_MONOTONIC, in ns.
CLOCKS: Final = r"""
import sys, time
for line in sys.stdin:
    print(time.time_ns(), time.monotonic_ns())
    sys.stdout.flush()
"""

#: A line {"listen": [port…]}, answered by {"taken": [port…]}; a line {"connect": {name: [[address, port]…]},
#: "seconds": s}, answered by {"failed": {name: [[port, why]…]}}; then it listens until its input ends.
PORTS: Final = r"""
import json, socket, sys, threading
listening, taken, failed = [], [], {}
for port in json.loads(sys.stdin.readline())["listen"]:
    try: listening.append(socket.create_server(("", port), backlog=128))
    except OSError: taken.append(port)
print(json.dumps({"taken": taken})); sys.stdout.flush()
asked = json.loads(sys.stdin.readline() or '{"connect": {}, "seconds": 1}')
def attempt(name, address, port):
    try: socket.create_connection((address, port), asked["seconds"]).close()
    except OSError as error: failed.setdefault(name, []).append([port, error.strerror or str(error)])
pairs = [(name, *place) for name, places in asked["connect"].items() for place in places]
threads = [threading.Thread(target=attempt, args=each) for each in pairs]
for each in threads: each.start()
for each in threads: each.join()
print(json.dumps({"failed": failed})); sys.stdout.flush()
sys.stdin.read()
"""


def packed_agent() -> bytes:
    """A tar of the package `agent`, as it is here."""
    buffer = io.BytesIO()
    folder = Path(agent.__file__).parent
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for path in sorted(folder.rglob("*.py")):
            tar.add(path, Path("agent") / path.relative_to(folder))
    return buffer.getvalue()
