"""Images as a file, for machines that begin empty: building them takes a minute or two, loading them seconds."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

import requests
from docker.errors import APIError, DockerException

from harness.cluster import RuntimeUnavailable
from harness.errors import BadArguments, HarnessFailure
from harness.plan.plan import Plan
from harness.targets.target import Target
from spark_history.regular import replacing, require_regular

from ..engine import connect, reason_of
from .images import EngineImages, base_tag, ensure_images, has_image

_CHUNK: Final = 1 << 20
#: Quick: what is in the layers is compressed little in any case.
_LEVEL: Final = 1


def save(path: Path, target: Target, progress: Callable[[str], None]) -> list[str]:
    """The images that a run of `target` needs, built if they are missing, and what they are built on. Compressed if the
    name ends with .gz or .tgz. Returns their tags. Raises RuntimeUnavailable, HarnessFailure."""
    api = connect()
    plan = Plan.model_construct(run="to-be-saved", target=target.name)
    images = ensure_images(api, progress, target.package(plan, EngineImages(api), progress))
    tags = [tag for tag in dict.fromkeys((images.node, images.agent, base_tag())) if has_image(api, tag)]
    progress(f"Writing {path}")
    try:
        # As docker.APIClient.get_image, but of several at once, so that what they share is written once.
        address = f"{api.base_url}/v{api.api_version}/images/get"
        with api.get(address, params={"names": tags}, stream=True) as answer, replacing(path) as unfinished:
            answer.raise_for_status()
            with _opened(unfinished, compressed=path.suffix in (".gz", ".tgz")) as file:
                for chunk in answer.iter_content(_CHUNK):
                    file.write(chunk)
    except (requests.RequestException, DockerException) as error:
        raise RuntimeUnavailable(f"Docker could not hand out the images: {reason_of(error)}") from error
    except OSError as error:
        raise HarnessFailure(f"{path} cannot be written: {error.strerror or error}") from None
    return tags


def load(path: Path) -> list[str]:
    """Tags that a file written by save() brings. Raises BadArguments, RuntimeUnavailable."""
    try:
        require_regular(path)
        file = path.open("rb")
    except OSError as error:
        raise BadArguments(f"{path} cannot be read: {error.strerror or error}") from None
    api = connect()
    with file:
        try:
            said = [str(status.get("stream", "")) for status in api.load_image(file)]
        except (APIError, requests.RequestException) as error:
            raise RuntimeUnavailable(f"Docker could not load {path}: {reason_of(error)}") from error
    tags = [line.partition("Loaded image: ")[2].strip() for line in said if "Loaded image: " in line]
    if not tags:
        raise BadArguments(f"{path} holds no image; `chaos image save` writes such a file")
    return tags


@contextmanager
def _opened(path: Path, *, compressed: bool) -> Iterator[IO[bytes]]:
    with path.open("wb") as raw:
        if not compressed:
            yield raw
            return
        with gzip.GzipFile(path.stem, "wb", _LEVEL, raw, mtime=0) as file:
            yield file  # type: ignore[misc]
