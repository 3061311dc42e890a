"""Removing runs completely: containers, networks, mounts, loop devices, volume images. Found by label, so that it
works as well for a run whose harness was killed. Everything here may be repeated."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import docker
from docker.errors import APIError, NotFound
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_fixed

from harness.runtimes import private
from harness.runtimes.owner import is_alive

from .agent_container import run_agent
from .engine import KIND_LABEL, OWNER_LABEL, RUN_LABEL, USER_LABEL, VOLUMES
from .images.images import ensure_agent

_AGENT_TIMEOUT = 20  # seconds to unmount and delete a run's volumes
_AT_A_TIME = 12


def remove_run(api: docker.APIClient, run: str) -> list[str]:
    """Names of the containers and networks removed, and the folders of volumes and of secrets. Raises APIError or
    OSError if something stays."""
    containers = api.containers(all=True, filters=_of(run))
    agents = [container for container in containers if container["Labels"].get(KIND_LABEL) == "agent"]
    folder = VOLUMES / run
    removed = private.remove(run)  # first of all: whatever becomes of the rest
    removed += [name.lstrip("/") for container in containers for name in container["Names"]]
    if folder.exists():
        removed.append(str(folder))
    for container in containers:
        if container.get("State") == "paused":  # else it can neither be stopped nor removed
            with contextlib.suppress(APIError):
                api.unpause(container["Id"])
    for network in api.networks(filters=_of(run)):
        disconnect(api, network["Id"])
    # Volumes can be unmounted for good only when no node has them mounted.
    remove_containers(api, [container["Id"] for container in containers if container not in agents])
    for agent in agents:
        with contextlib.suppress(NotFound):
            api.stop(agent["Id"], timeout=_AGENT_TIMEOUT)  # it unmounts and deletes what it made
    remove_containers(api, [agent["Id"] for agent in agents])
    if folder.exists():
        run_agent(api, ensure_agent(api, lambda _: None), run, "remove")
    for network in api.networks(filters=_of(run)):
        with contextlib.suppress(NotFound):
            remove_network(api, network["Id"])
            removed.append(network["Name"])
    return removed


def disconnect(api: docker.APIClient, network: str) -> None:
    """All of its containers, before they are removed. One after the other: an engine that lets go of many endpoints at
    once may lose count of them, and then keeps their network for ever (moby issue 42119)."""
    for container in api.inspect_network(network)["Containers"]:
        with contextlib.suppress(APIError):  # gone just now
            api.disconnect_container_from_network(container, network, force=True)


def remove_network(api: docker.APIClient, network: str) -> None:
    """Whose containers are removed. Raises NotFound if there is none, APIError if it stays."""
    for attempt in _while_endpoints_go():
        with attempt:
            api.remove_network(network)


def remove_containers(api: docker.APIClient, containers: Iterable[str]) -> None:
    """With their volumes; those that are gone or going are well. Raises APIError if one stays."""

    def remove(container: str) -> None:
        try:
            api.remove_container(container, force=True, v=True)
        except NotFound:
            pass
        except APIError as error:
            if error.status_code != 409:  # being removed already
                raise

    with ThreadPoolExecutor(max_workers=_AT_A_TIME) as pool:
        list(pool.map(remove, containers))


def _while_endpoints_go() -> Retrying:
    """The engine may count a container's endpoint for a moment after it has removed the container."""
    return Retrying(
        retry=retry_if_exception(lost_count),
        wait=wait_fixed(0.2), stop=stop_after_delay(5), reraise=True,
    )  # fmt: skip


def lost_count(error: BaseException) -> bool:
    """Does the engine count endpoints of a network, though it may have none?"""
    return isinstance(error, APIError) and "active endpoints" in str(error)


@dataclass
class Left:
    """What there is of a run on this machine. user: whose it is, as far as it says. alive: is its harness?"""

    containers: int = 0
    networks: int = 0
    volumes: bool = False
    secrets: bool = False
    alive: bool = False
    user: int | None = None

    def reason_to_stay(self, *, everything: bool) -> str | None:
        """Why a clean that names no run leaves it alone, as a clause. everything: also what is of other users."""
        if self.alive:
            return "its harness is still running"
        if not everything and self.user not in (None, os.getuid()):
            return f"it is of user {self.user}; --all removes it too"
        return None

    @property
    def in_words(self) -> str:
        counted = ((self.containers, "container"), (self.networks, "network"), (int(self.volumes), "folder of volumes"),
                   (int(self.secrets), "folder of secrets"))  # fmt: skip
        return ", ".join(f"{count} {noun}{'s' * (count != 1)}" for count, noun in counted if count) or "nothing"


def runs(api: docker.APIClient) -> dict[str, Left]:
    """Every run of which something is left on this machine."""
    found: dict[str, Left] = {}
    for folder in VOLUMES.glob("*"):
        found.setdefault(folder.name, Left()).volumes = True
    for run in private.runs():
        found.setdefault(run, Left()).secrets = True
    labelled = {"label": RUN_LABEL}
    containers, networks = api.containers(all=True, filters=labelled), api.networks(filters=labelled)
    for thing in [*containers, *networks]:
        left = found.setdefault(thing["Labels"][RUN_LABEL], Left())
        left.alive = left.alive or is_alive(thing["Labels"].get(OWNER_LABEL, ""))
        user = thing["Labels"].get(USER_LABEL, "")
        left.user = int(user) if user.isdigit() else left.user
    for thing in containers:
        found[thing["Labels"][RUN_LABEL]].containers += 1
    for thing in networks:
        found[thing["Labels"][RUN_LABEL]].networks += 1
    return found


def _of(run: str) -> dict[str, Any]:
    return {"label": f"{RUN_LABEL}={run}"}
