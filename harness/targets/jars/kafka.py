"""The jars of a release of Apache Kafka: from the cache, or by the Maven client."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from harness.errors import RuntimeUnavailable
from harness.targets.jars import cache, maven
from harness.targets.jars.distribution import Distribution, of_jars

REPOSITORY: Final = "apache/kafka"  # of images
Tell = Callable[[str], object]


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
            maven.fetch(maven.kafka(version), f"Kafka {version}", libs, tell)
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
        f"{REPOSITORY}:{version}, and {why}; give a distribution by --kafka-home, or run `chaos target fetch "
        f"kafka:{version}` where there is a network."
    )


def _name(version: str) -> str:
    return f"kafka-{version}"
