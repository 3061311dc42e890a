"""The container of the privileged agent (see agent/)."""

from __future__ import annotations

from collections.abc import Mapping

import docker

from .engine import KIND_LABEL, OWNER_LABEL, RUN_LABEL, VOLUMES, owner

_TIMEOUT = 30  # seconds for what it does in one go


def create_agent(api: docker.APIClient, image: str, run: str, labels: Mapping[str, str], command: list[str]) -> str:
    """Returns its id. It may do what is named here: --privileged needs more than many machines give."""
    folder = VOLUMES / run
    return str(
        api.create_container(
            image, command, name=f"chaos-{run}-agent-{command[0]}", labels=dict(labels), network_disabled=True,
            host_config=api.create_host_config(
                cap_add=["SYS_ADMIN", "NET_ADMIN", "SYS_PTRACE", "SYS_CHROOT"],
                # Mounting is what the profiles of AppArmor, seccomp and SELinux for containers are there to forbid.
                security_opt=["apparmor=unconfined", "seccomp=unconfined", "label=disable"],
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
    labels = {RUN_LABEL: run, KIND_LABEL: "agent", OWNER_LABEL: owner()}
    container = create_agent(api, image, run, labels, [command, str(VOLUMES / run)])
    try:
        api.start(container)
        status = api.wait(container, timeout=_TIMEOUT)["StatusCode"]
        output = api.logs(container).decode(errors="replace").strip()
    finally:
        api.remove_container(container, force=True)
    if status != 0:
        raise OSError(f"the agent failed to {command}: {output}")
    return str(output)
