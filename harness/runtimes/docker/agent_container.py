"""The container of the privileged agent (see harness/runtimes/agent)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import docker

from . import seccomp
from .engine import VOLUMES, labels

#: What it does with each; it has no other.
CAPABILITIES: Final = {
    "SYS_ADMIN": "mounts volumes, enters namespaces of mounts and networks, sets up loop devices",
    "SYS_CHROOT": "enters the engine's namespace of mounts",
    "SYS_PTRACE": "opens /proc/PID/ns of processes of other users",
    "NET_ADMIN": "rules, queues and interfaces of the nodes' networks",
    "NET_RAW": "sends ICMP echoes",
    "KILL": "ends, stops and resumes nodes, which are another user's",
    "CHOWN": "gives volumes to nodes, and copies of them to the harness",
    "DAC_OVERRIDE": "reads what nodes wrote for themselves, and writes where the harness wants it",
}
_PIDS = 4096
_TIMEOUT = 30  # seconds for what it does in one go


def create_agent(api: docker.APIClient, image: str, run: str, labelled: Mapping[str, str], command: list[str]) -> str:
    """Returns its id. It may do what is named here: --privileged needs more than many machines give."""
    folder = VOLUMES / run
    return str(
        api.create_container(
            image, command, name=f"chaos-{run}-agent-{command[0]}", labels=dict(labelled), network_disabled=True,
            host_config=api.create_host_config(
                cap_drop=["ALL"],
                cap_add=list(CAPABILITIES),
                # AppArmor's profile for containers forbids all mounting, SELinux' label all files of the host; where
                # there is neither, the engine takes no notice.
                security_opt=["apparmor=unconfined", "label=disable", "no-new-privileges", seccomp.option()],
                read_only=True,
                pids_limit=_PIDS,
                device_cgroup_rules=["b 7:* rmw", "c 10:237 rmw"],  # loop devices, /dev/loop-control
                pid_mode="host",
                cgroupns="host",
                cpu_shares=8192,  # the nodes have 1024 each: a fault does not wait its turn
                binds=[f"{folder}:{folder}"],
            ),
        )["Id"]
    )  # fmt: skip


def run_agent(api: docker.APIClient, image: str, run: str, command: str) -> str:
    """`agent COMMAND FOLDER` for the folder of `run`, to its end. Returns its output. Raises OSError if it fails."""
    container = create_agent(api, image, run, labels(run, "agent"), [command, str(VOLUMES / run)])
    try:
        api.start(container)
        status = api.wait(container, timeout=_TIMEOUT)["StatusCode"]
        output = api.logs(container).decode(errors="replace").strip()
    finally:
        api.remove_container(container, force=True)
    if status != 0:
        raise OSError(f"the agent failed to {command}: {output}")
    return str(output)
