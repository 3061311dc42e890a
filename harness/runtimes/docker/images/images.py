"""The images of nodes and agent, built when their sources change.

Each is tagged by a hash of what goes into it, so an unchanged one costs one look-up. The base, which takes a minute
or two, changes only with its pinned requirements; the images above it are one thin layer each.
"""

from __future__ import annotations

import hashlib
import importlib.util
import io
import shutil
import sys
import tarfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import docker
from docker.errors import APIError, ImageNotFound

import cluster_image
from harness.cluster import RuntimeUnavailable
from harness.runtimes.owner import is_alive, owner
from harness.targets.target import Package

from ..engine import BUILD_LABEL, CHECKOUT_LABEL, IMAGE_LABEL, reason_of
from . import builds

Progress = Callable[[str], None]

_HERE = Path(__file__).parent
_CLUSTER_IMAGE = Path(cluster_image.__file__).parent
_CHECKOUT = _CLUSTER_IMAGE.parent.resolve()
_REQUIREMENTS = _CLUSTER_IMAGE / "container" / "requirements.txt"
_PYTHON = "3.11"  # of both bases
_OFFICIAL = f"python:{_PYTHON}-slim-bookworm"
_BOOTSTRAP = _HERE / "bootstrap_base.sh"
_BASE_DOCKERFILE = _HERE / "base.Dockerfile"
_CLOCK_LIBRARY = _HERE.parents[1] / "agent" / "clock_library.py"
_BOOTSTRAPPED = "chaos-bootstrap"


@dataclass(frozen=True)
class Images:
    """Tags."""

    node: str
    agent: str


@dataclass(frozen=True)
class _Layer:
    """An image on a base: all parts, by their places in the context, as `dockerfile` says. base: "": the own one."""

    name: str
    parts: Mapping[str, Path]
    dockerfile: Path
    base: str = ""

    def tag(self, api: docker.APIClient) -> str:
        """Also by what the base is: its own name may be given to another image."""
        sources = [path for part in self.parts.values() for path in _files_of(part)]
        base = _id_of(api, self.base) if self.base else base_tag()
        return f"chaos-{self.name}:{_digest([self.dockerfile, *sources], base)}"


def _node(package: Package) -> _Layer:
    return _Layer(package.name, package.parts, package.dockerfile, package.base)


_AGENT = _Layer("agent", {"": _HERE.parents[1] / "agent"}, _HERE / "agent.Dockerfile")


def ensure_images(api: docker.APIClient, progress: Progress, package: Package) -> Images:
    """Builds what is missing. package: of the nodes. Raises RuntimeUnavailable."""
    return Images(node=_ensure(api, progress, _node(package)), agent=ensure_agent(api, progress))


def ensure_agent(api: docker.APIClient, progress: Progress) -> str:
    """The tag of the agent's image, built if it is missing. Raises RuntimeUnavailable."""
    return _ensure(api, progress, _AGENT)


def _ensure(api: docker.APIClient, progress: Progress, layer: _Layer) -> str:
    base = layer.base or base_tag()
    if not layer.base and not has_image(api, base):
        with builds.one_at_a_time(lambda: progress("Waiting for the base image, which another chaos is building")):
            if not has_image(api, base):
                _build_base(api, base, progress)
    if not has_image(api, tag := layer.tag(api)):
        progress(f"Building the image chaos-{layer.name}")
        _build(api, tag, layer.name, layer.parts, layer.dockerfile, base)
    return tag


def base_tag() -> str:
    return f"chaos-base:{_digest([_REQUIREMENTS, _BOOTSTRAP, _BASE_DOCKERFILE, _CLOCK_LIBRARY])}"


def has_image(api: docker.APIClient, tag: str) -> bool:
    return bool(_id_of(api, tag))


def _id_of(api: docker.APIClient, tag: str) -> str:
    """ "": there is no such image."""
    try:
        return str(api.inspect_image(tag)["Id"])
    except ImageNotFound:
        return ""


class EngineImages:
    """Implements harness.targets.target.ImageStore."""

    def __init__(self, api: docker.APIClient) -> None:
        self._api = api

    def has(self, tag: str) -> bool:
        return has_image(self._api, tag)

    def pull(self, repository: str, version: str) -> bool:
        try:
            return not any("error" in status for status in
                           self._api.pull(repository, tag=version, stream=True, decode=True))  # fmt: skip
        except APIError:
            return False


def superseded(api: docker.APIClient, packages: Iterable[Package], *, of_others: bool = False) -> list[str]:
    """Tags of node and agent images of this checkout that are of none of these packages any more, nor of the agent's
    sources. packages: of the nodes of all targets that there are. of_others: also those of other checkouts, and of
    before it was noted of which. (Bases stay: they are few, and dear.)"""
    current = {layer.tag(api) for layer in (*map(_node, packages), _AGENT)}
    return [
        tag
        for image in api.images(filters={"label": IMAGE_LABEL})
        if (labels := image.get("Labels") or {}).get(IMAGE_LABEL) not in ("base", _BOOTSTRAPPED)
        for tag in image["RepoTags"] or ()
        if tag not in current and (of_others or labels.get(CHECKOUT_LABEL) == str(_CHECKOUT))
    ]


def of_dead_builds(api: docker.APIClient) -> list[str]:
    """Tags of bootstrapped images of which no base was made, by builds that are no more."""
    return [
        tag
        for image in api.images(filters={"label": f"{IMAGE_LABEL}={_BOOTSTRAPPED}"})
        for tag in image["RepoTags"] or ()
        if tag.startswith(_BOOTSTRAPPED) and not is_alive((image.get("Labels") or {}).get(BUILD_LABEL, ""))
        and not has_image(api, tag.replace(_BOOTSTRAPPED, "chaos-base"))
    ]  # fmt: skip


def _build_base(api: docker.APIClient, tag: str, progress: Progress) -> None:
    with builds.scratch() as folder:
        context = folder / "context"
        context.mkdir()
        progress("Building the base image (once; a minute or two): fetching the node's dependencies")
        _fetch_requirements(context / "site-packages", folder)
        shutil.copy(_CLOCK_LIBRARY, context)
        progress(f"Building the base image (once; a minute or two): asking a registry for {_OFFICIAL}")
        repository, _, version = _OFFICIAL.partition(":")
        origin = _OFFICIAL if EngineImages(api).pull(repository, version) else None
        if origin is None:
            progress("Building the base image (once; a minute or two): no registry answers, bootstrapping Debian")
            origin = _bootstrap(api, tag, folder)
        progress("Building the base image (once; a minute or two): putting it together")
        _build(api, tag, "base", {"": context}, _BASE_DOCKERFILE, origin)


def _fetch_requirements(target: Path, folder: Path) -> None:
    """For the container's Python, which need not be the harness'; so that building needs no package index."""
    if importlib.util.find_spec("pip") is None:
        raise RuntimeUnavailable(
            f"The node image's dependencies cannot be fetched: {sys.executable} has no pip; "
            "add it with `python -m ensurepip`."
        )
    command = [
        sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile", "--no-deps",
        "--only-binary=:all:", "--implementation=cp", f"--python-version={_PYTHON}",
        f"--target={target}", f"--requirement={_REQUIREMENTS}",
    ]  # fmt: skip
    fetched = builds.run(command, folder)
    if fetched.returncode != 0:
        raise RuntimeUnavailable(f"pip could not fetch the node image's dependencies: {_last_line(fetched.stderr)}")


def _bootstrap(api: docker.APIClient, tag: str, folder: Path) -> str:
    """Its name. One that an earlier build came to will do."""
    origin = tag.replace("chaos-base", _BOOTSTRAPPED)
    if has_image(api, origin):
        return origin
    tar = folder / "base.tar"
    made = builds.run(["bash", str(_BOOTSTRAP), str(tar)], folder)
    if made.returncode != 0:
        raise RuntimeUnavailable(
            f"There is no base image: no registry answers, and bootstrapping one from Debian packages failed "
            f"({_last_line(made.stderr)}); run once as root, or load {_OFFICIAL}."
        )
    repository, _, version = origin.partition(":")
    labels = f"LABEL {IMAGE_LABEL}={_BOOTSTRAPPED} {BUILD_LABEL}={owner()}"
    answer = api.import_image_from_file(str(tar), repository=repository, tag=version, changes=[labels])
    if '"error"' in answer:
        raise RuntimeUnavailable(f"Docker could not import the base image: {_last_line(answer)}")
    tar.unlink()
    return origin


def _build(api: docker.APIClient, tag: str, name: str, parts: Mapping[str, Path], dockerfile: Path, base: str) -> None:
    try:
        answer = api.build(
            fileobj=_context(parts, dockerfile, name), custom_context=True, tag=tag, rm=True, forcerm=True,
            buildargs={"BASE": base}, labels={IMAGE_LABEL: name, CHECKOUT_LABEL: str(_CHECKOUT)}, decode=True,
        )  # fmt: skip
        for status in answer:
            if "error" in status:
                raise RuntimeUnavailable(f"Docker could not build {tag}: {status['error'].strip()}")
    except APIError as error:
        raise RuntimeUnavailable(f"Docker could not build {tag}: {reason_of(error)}") from error


def _context(parts: Mapping[str, Path], dockerfile: Path, name: str) -> io.BytesIO:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for place, part in parts.items():
            tar.add(part, arcname=place or ".", filter=lambda entry: entry if _belongs(Path(entry.name)) else None)
        content = builds.labelled(dockerfile.read_text(), name).encode()
        entry = tar.gettarinfo(str(dockerfile), arcname="Dockerfile")
        entry.size = len(content)
        tar.addfile(entry, io.BytesIO(content))
    buffer.seek(0)
    return buffer


def _files_of(part: Path) -> list[Path]:
    return sorted(path for path in part.rglob("*") if _belongs(path)) if part.is_dir() else [part]


def _belongs(path: Path) -> bool:
    return path.name != "__pycache__" and path.suffix != ".pyc"


def _digest(files: Iterable[Path], *names: str) -> str:
    digest = hashlib.sha256("\0".join(names).encode())
    for file in files:
        if file.is_file():
            content = file.read_bytes()
            digest.update(f"\0{file.parent.name}/{file.name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()[:12]


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else "no message"
