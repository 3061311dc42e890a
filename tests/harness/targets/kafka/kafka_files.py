"""Files of Kafkas that are none: jars with a version in them, distributions, Maven clients that only say something."""

from __future__ import annotations

import stat
import tarfile
import zipfile
from pathlib import Path


def make_jars(libs: Path, version: str = "4.2.0", commit: str = "a18251bae0b825c6") -> Path:
    libs.mkdir(parents=True)
    with zipfile.ZipFile(libs / f"kafka-clients-{version}.jar", "w") as jar:
        jar.writestr("kafka/kafka-version.properties", f"#made\ncommitId={commit}\nversion={version}\n")
    for name in ("kafka_2.13", "kafka-metadata", "kafka-raft"):
        (libs / f"{name}-{version}.jar").write_bytes(b"jar")
    return libs


def make_archive(path: Path, version: str = "4.2.0") -> Path:
    root = path.parent / f"made-for-{path.name}"
    make_jars(root / "libs", version)
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz") as tar:
        tar.add(root, arcname=f"kafka_2.13-{version}")
    return path


def make_maven(folder: Path, script: str) -> None:
    """A client `mvn` in this folder. $OUT: where it is to put the jars."""
    folder.mkdir(parents=True, exist_ok=True)
    client = folder / "mvn"
    find = 'for word in "$@"; do case $word in -DoutputDirectory=*) OUT=${word#*=};; esac; done'
    client.write_text(f"#!/bin/sh\n{find}\n{script}\n")
    client.chmod(client.stat().st_mode | stat.S_IXUSR)
