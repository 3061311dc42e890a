"""Where the Kafka of a version comes from: what is at hand first, then what must be fetched.

1. --kafka-home (home.py). 2. The image apache/kafka:VERSION, if the engine has it. 3. The cache. 4. The same image from
a registry. 5. The Maven client, into the cache.
"""

from __future__ import annotations

from harness.errors import BadArguments
from harness.targets.jars.distribution import Distribution
from harness.targets.jars.kafka import REPOSITORY, Tell, cached, fetch
from harness.targets.kafka import versions
from harness.targets.kafka.sources import home
from harness.targets.target import ImageStore


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
    tag = f"{REPOSITORY}:{version}"
    if images.has(tag):
        return Distribution(version, "", f"the image {tag}", base=tag)
    if (found_ := cached(version)) is not None:
        return found_
    tell(f"Asking a registry for {tag}")
    if images.pull(REPOSITORY, version):
        return Distribution(version, "", f"the image {tag}", base=tag)
    return fetch(version, tell)


def find_to_upgrade_to(wanted: str, tell: Tell) -> Distribution:
    """As jars, which go into the image of the release that comes before. wanted: a version, or a distribution as of
    --kafka-home. Blocks. Raises BadArguments, RuntimeUnavailable."""
    return (cached(wanted) or fetch(wanted, tell)) if versions.is_version(wanted) else home.find(wanted)
