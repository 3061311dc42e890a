"""Where the Kafka of a version comes from: what is at hand first, then what must be fetched.

1. --kafka-home (home.py). 2. The image apache/kafka:VERSION, if the engine has it. 3. The cache. 4. The same image from
a registry. 5. The Maven client, into the cache.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from harness.errors import BadArguments, RuntimeUnavailable
from harness.targets.kafka import versions
from harness.targets.kafka.sources import cache, home, maven
from harness.targets.kafka.sources.distribution import Distribution, of_jars
from harness.targets.target import ImageStore

_REPOSITORY: Final = "apache/kafka"
Tell = Callable[[str], object]


def find(version: str, kafka_home: str | None, images: ImageStore, tell: Tell) -> Distribution:
    """version: "" where only kafka_home says it. Blocks. Raises BadArguments, RuntimeUnavailable."""
    if kafka_home is not None:
        found = home.find(kafka_home)
        if version and found.version != version:
            raise BadArguments(
                f"--kafka-home {kafka_home} is Kafka {found.version}, and --target asks for {version}; "
                f"use --target kafka:{found.version}"
            )
        return found
    tag = f"{_REPOSITORY}:{version}"
    if images.has(tag):
        return Distribution(version, "", f"the image {tag}", base=tag)
    if (found_ := cached(version)) is not None:
        return found_
    tell(f"Asking a registry for {tag}")
    if images.pull(_REPOSITORY, version):
        return Distribution(version, "", f"the image {tag}", base=tag)
    return fetch(version, tell)


def find_to_upgrade_to(wanted: str, tell: Tell) -> Distribution:
    """As jars, which go into the image of the release that comes before. wanted: a version, or a distribution as of
    --kafka-home. Blocks. Raises BadArguments, RuntimeUnavailable."""
    return (cached(wanted) or fetch(wanted, tell)) if versions.is_version(wanted) else home.find(wanted)


def cached(version: str) -> Distribution | None:
    libs = cache.libs_of(_name(version))
    return None if libs is None else of_jars(libs, f"the Maven client, kept in {libs.parent}")


def fetch(version: str, tell: Tell) -> Distribution:
    """By the Maven client, into the cache. Raises RuntimeUnavailable."""
    name = _name(version)
    if cache.place_of(name).exists():
        tell(f"What is in {cache.place_of(name)} is damaged, and fetched anew")
    tell(f"Fetching Kafka {version} by the Maven client")
    try:
        with cache.being_filled(name, {"version": version}) as libs:
            maven.fetch(version, libs, tell)
            of_jars(libs, "what Maven fetched")
    except maven.NoMaven:
        raise _nowhere(version, "there is no Maven client (mvn) on the PATH") from None
    except RuntimeUnavailable as error:
        raise _nowhere(version, str(error).rstrip(".")) from error
    libs = cache.place_of(name) / "libs"
    return of_jars(libs, f"the Maven client, kept in {libs.parent}")


def _nowhere(version: str, why: str) -> RuntimeUnavailable:
    place = cache.place_of(_name(version))
    lacks = f"what is in {place} is damaged" if place.exists() else f"it is not in {cache.folder()}"
    return RuntimeUnavailable(
        f"There is no Kafka {version} to run: {lacks}, no registry gave the image "
        f"{_REPOSITORY}:{version}, and {why}; give a distribution by --kafka-home, or run `chaos target fetch "
        f"kafka:{version}` where there is a network."
    )


def _name(version: str) -> str:
    return f"kafka-{version}"
