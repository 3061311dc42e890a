"""The Docker Engine of this machine, and how a run's containers and networks are found again: by label.

`chaos.run` names the run, `chaos.kind` what a container is for, `chaos.owner` the harness process that it lives and
dies with, so that `chaos clean` can tell a dead run from one that another harness is busy with.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path
from urllib.parse import urlsplit

import docker
from docker.errors import APIError, DockerException

from harness.cluster import RuntimeUnavailable
from harness.runtimes.owner import owner

RUN_LABEL = "chaos.run"
KIND_LABEL = "chaos.kind"  # node, network (holds a node's network namespace) or agent
OWNER_LABEL = "chaos.owner"
IMAGE_LABEL = "chaos.image"
USER_LABEL = "chaos.user"  # the id of the user whose run it is
CHECKOUT_LABEL = "chaos.checkout"  # where the sources lie of which an image was made
BUILD_LABEL = "chaos.build"  # the harness process that builds, or built, an image

VOLUMES = Path("/var/lib/chaos")  # on the engine's machine; a folder a run, the agent's own

_TIMEOUT = 60  # seconds for one request to the engine
_CONNECTIONS = 32  # kept open; more are made and dropped


def connect() -> docker.APIClient:
    """Raises RuntimeUnavailable."""
    address = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock")
    url = urlsplit(address)
    if url.scheme != "unix":
        raise RuntimeUnavailable(
            f"DOCKER_HOST is {address}, but nodes can only be reached on an engine of this machine: unset it."
        )
    if os.path.exists(url.path) and not os.access(url.path, os.R_OK | os.W_OK):
        raise RuntimeUnavailable(
            f"No permission for Docker's socket {url.path}: run as root, or join its group with "
            "`sudo usermod -aG docker $USER` and log in again."
        )
    try:
        with socket.socket(socket.AF_UNIX) as tried:  # the client leaves its own open when nobody answers
            tried.settimeout(_TIMEOUT)
            tried.connect(url.path)
        return docker.APIClient(base_url=address, version="auto", timeout=_TIMEOUT, max_pool_size=_CONNECTIONS)
    except (OSError, DockerException) as error:
        raise RuntimeUnavailable(
            f"No Docker Engine answers at {address}: start it, or install and start one on Debian with "
            "`sudo make docker`."
        ) from error


def reason_of(error: BaseException) -> str:
    """What the engine has to say of an error, in one line: not the address of its socket and a status code."""
    said = getattr(error, "explanation", None) if isinstance(error, APIError) else None
    if isinstance(said, bytes):
        said = said.decode(errors="replace")
    return " ".join(str(said or error).split()).rstrip(".")


def labels(run: str, kind: str) -> dict[str, str]:
    """Of a container or network of a run of this process."""
    return {RUN_LABEL: run, KIND_LABEL: kind, OWNER_LABEL: owner(), USER_LABEL: str(os.getuid())}
