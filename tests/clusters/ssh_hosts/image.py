"""The image of hosts: Debian's own packages on the base of this project's other images, for no registry need answer."""

from __future__ import annotations

import hashlib
import io
import subprocess
import tarfile
from pathlib import Path
from typing import Final

import docker

from harness.runtimes.docker.images import builds, images

_HERE: Final = Path(__file__).parent
#: What the base has not got of what openssh-server and sudo need.
_PACKAGES: Final = (
    "openssh-client", "openssh-server", "openssh-sftp-server", "sudo", "procps", "libproc2-0", "libncursesw6",
    "libwrap0", "runit-helper", "ucf", "sensible-utils", "libfido2-1", "libcbor0.8",
)  # fmt: skip


def ensure(api: docker.APIClient) -> str:
    """Its tag."""
    images.ensure_agent(api, lambda _: None)  # and so the base
    sources = (_HERE / "hosts.Dockerfile", _HERE / "start.sh", Path(__file__))
    digest = hashlib.sha256(images.base_tag().encode() + b"".join(each.read_bytes() for each in sources))
    tag = f"chaos-ssh-host:{digest.hexdigest()[:12]}"
    if images.has_image(api, tag):
        return tag
    with builds.scratch() as folder:
        packages = folder / "debs"
        packages.mkdir()
        _download(packages)
        context = io.BytesIO()
        with tarfile.open(fileobj=context, mode="w") as tar:
            tar.add(packages, "debs")
            tar.add(_HERE / "start.sh", "start.sh")
            tar.add(_HERE / "hosts.Dockerfile", "Dockerfile")
        context.seek(0)
        answer = api.build(
            fileobj=context, custom_context=True, tag=tag, rm=True, forcerm=True, decode=True, network_mode="none",
            buildargs={"BASE": images.base_tag()}, labels={"chaos.test-image": "ssh-host"},
        )  # fmt: skip
        said = [status.get("stream") or status.get("error", "") for status in answer]
    assert images.has_image(api, tag), "".join(said)[-2000:]
    return tag


def _download(folder: Path) -> None:
    command = ["apt-get", "download", "-qq", "-o", "APT::Sandbox::User=root", *_PACKAGES]
    if subprocess.run(command, cwd=folder, capture_output=True, check=False).returncode != 0:  # lists may be old
        subprocess.run(["apt-get", "update", "-qq"], check=True, capture_output=True)
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
