"""A Kafka to run: its jars, or an image that has them, and which version and commit it says it is."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harness.errors import RuntimeUnavailable

#: In kafka-clients-<version>.jar: what the build was made of.
_VERSION_FILE: Final = "kafka/kafka-version.properties"
#: Without these nobody need try to start a node.
_NEEDED: Final = {
    "kafka_2.*.jar": "kafka_2.13", "kafka-metadata-*.jar": "kafka-metadata", "kafka-raft-*.jar": "kafka-raft",
}  # fmt: skip
_CLIENTS: Final = re.compile(r"kafka-clients-\d[\w.-]*\.jar")


@dataclass(frozen=True)
class Distribution:
    """libs: the folder of its jars; None: they are in the image `base`. commit: "" where it is not known. source: in
    words, where it was found."""

    version: str
    commit: str
    source: str
    libs: Path | None = None
    base: str = ""

    def in_words(self) -> str:
        commit = f" (commit {self.commit})" if self.commit else ""
        return f"Apache Kafka {self.version}{commit}, from {self.source}"


def of_jars(libs: Path, source: str) -> Distribution:
    """Raises RuntimeUnavailable unless the folder has Kafka's jars."""
    jars = sorted(path for path in libs.glob("kafka-clients-*.jar") if _CLIENTS.fullmatch(path.name))
    jars = [path for path in jars if not path.name.endswith(("-test.jar", "-sources.jar", "-javadoc.jar"))]
    for form, name in _NEEDED.items():
        if not list(libs.glob(form)):
            raise RuntimeUnavailable(f"{source} is no Kafka, or not all of it: it has no {name}-<version>.jar.")
    if not jars:
        raise RuntimeUnavailable(f"{source} is no Kafka: it has no kafka-clients-<version>.jar.")
    told = _version_of(jars[0])
    version = told.get("version") or jars[0].name.removeprefix("kafka-clients-").removesuffix(".jar")
    return Distribution(version, told.get("commitId", ""), source, libs)


def _version_of(jar: Path) -> Mapping[str, str]:
    try:
        with zipfile.ZipFile(jar) as archive:
            text = archive.read(_VERSION_FILE).decode(errors="replace")
    except (OSError, KeyError, zipfile.BadZipFile) as error:
        raise RuntimeUnavailable(f"{jar} cannot be read as one of Kafka's jars: {error}.") from error
    lines = (line.partition("=") for line in text.splitlines() if not line.startswith("#"))
    return {name.strip(): value.strip() for name, _, value in lines}
