"""Fetches jars, and all that they need to run, by the Maven client."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from harness.errors import RuntimeUnavailable

#: Kafka 3 logs by reload4j, Kafka 4 by Log4j 2; both through SLF4J 1.7, whose binding a distribution adds.
_LOGGING_3: Final = (("org.slf4j", "slf4j-reload4j", "1.7.36"),)
_LOGGING_4: Final = (
    ("org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.3"),
    ("org.apache.logging.log4j", "log4j-core", "2.25.3"),
)
_SILENCE_S: Final = 60.0  # after which it is given up
_NOT_FOUND: Final = re.compile(r"Could not find artifact (\S+?):(\S+?):(?:jar|pom):(?:\S+?:)?(\S+)")
_NOT_RESOLVED: Final = re.compile(r"[^:]*\b(\S+?):(\S+?):(?:jar|pom):(\S+) (?:was not found|has not been downloaded)")


class NoMaven(Exception):
    """There is no Maven client on the PATH."""


Artifact = tuple[str, str, str]  # group, name, version


def kafka(version: str) -> Sequence[Artifact]:
    """What a node of that release runs from."""
    return (("org.apache.kafka", "kafka_2.13", version), *(_LOGGING_3 if version.startswith("3.") else _LOGGING_4))


def fetch(artifacts: Sequence[Artifact], what: str, libs: Path, tell: Callable[[str], object]) -> None:
    """Into this folder. what: these are, in words. tell: how far it is, a line each. Raises NoMaven, and
    RuntimeUnavailable with a clause that says what did not resolve."""
    client = shutil.which("mvn")
    if client is None:
        raise NoMaven
    with tempfile.TemporaryDirectory() as folder:
        pom = Path(folder, "pom.xml")
        pom.write_text(_pom(artifacts))
        command = [
            client, "--batch-mode", "--file", str(pom), "dependency:copy-dependencies", "-DincludeScope=runtime",
            f"-DoutputDirectory={libs}", "-Dmaven.wagon.http.retryHandler.count=1",
        ]  # fmt: skip
        lines, status = _output_of(command, what, tell)
    if status != 0:
        raise RuntimeUnavailable(_why(lines))


def _output_of(command: list[str], what: str, tell: Callable[[str], object]) -> tuple[list[str], int]:
    lines: list[str] = []
    fetched = 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as maven:
        assert maven.stdout is not None
        watch = _Watch(maven)
        try:
            for line in maven.stdout:
                watch.heard()
                lines.append(line.strip())
                if "Downloaded from" in line and ".jar" in line:
                    fetched += 1
                    tell(f"Fetching {what} by the Maven client: {fetched} jars")
            status = maven.wait()
        except BaseException:  # the user's, too: it would go on writing into a folder that is to be removed
            maven.kill()
            maven.wait()
            raise
        finally:
            watch.end()
    if watch.gave_up:
        raise RuntimeUnavailable(f"Maven has said nothing for {_SILENCE_S:g} s")
    return lines, status


class _Watch:
    """Ends a process that says nothing."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.gave_up = False
        self.heard()

    def heard(self) -> None:
        self.end()
        self._timer = threading.Timer(_SILENCE_S, self._give_up)
        self._timer.daemon = True
        self._timer.start()

    def end(self) -> None:
        if (timer := getattr(self, "_timer", None)) is not None:
            timer.cancel()

    def _give_up(self) -> None:
        self.gave_up = True
        self._process.kill()


def _why(lines: list[str]) -> str:
    """Of what Maven printed, as a clause."""
    errors = [re.sub(r"\x1b\[[0-9;]*m", "", line).removeprefix("[ERROR] ") for line in lines if "ERROR" in line]
    for error in errors:
        if found := _NOT_FOUND.search(error) or _NOT_RESOLVED.search(error):
            return f"Maven finds no {found[2]}-{found[3].rstrip(':')}.jar"
    if any("Unknown host" in error or "Temporary failure in name resolution" in error for error in errors):
        return "Maven reaches no repository: its host cannot be resolved"
    return f"Maven says: {errors[0]}" if errors else "Maven ended without a word"


def _pom(artifacts: Sequence[Artifact]) -> str:
    dependencies = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{v}</version></dependency>"
        for group, artifact, v in artifacts
    )
    return (
        "<project><modelVersion>4.0.0</modelVersion>"
        "<groupId>chaos</groupId><artifactId>kafka</artifactId><version>1</version><packaging>pom</packaging>"
        f"<dependencies>{dependencies}</dependencies></project>\n"
    )
