"""python -m tests.clusters.ssh_hosts up N [--folder F] | down --folder F | down --all: also sets of others."""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from harness.runtimes.docker import engine

from . import SshHosts, remove


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.clusters.ssh_hosts", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    up = commands.add_parser("up")
    up.add_argument("count", type=int, metavar="N")
    for each in (up, commands.add_parser("down")):
        each.add_argument("--folder", type=Path)
    commands.choices["down"].add_argument("--all", action="store_true", dest="everything")
    given = parser.parse_args()
    if given.command == "down":
        if given.folder is None and not given.everything:
            parser.error("whose? give --folder, or --all, which takes also what others use")
        for name in remove(engine.connect(), folder=given.folder):
            print(f"removed {name}")
        return
    folder = given.folder or Path(tempfile.mkdtemp(prefix="chaos-ssh-hosts-"))
    started = time.monotonic()
    hosts = SshHosts(folder, given.count, keep=True)
    hosts.up()
    print(f"{hosts.file}: {given.count} hosts in {time.monotonic() - started:.1f} s")


main()
