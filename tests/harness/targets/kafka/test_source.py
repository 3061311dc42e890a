"""Where a Kafka comes from: what is at hand first, and in a sentence why there is none."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from harness.errors import BadArguments, RuntimeUnavailable
from harness.targets.jars import cache
from harness.targets.kafka.sources import source
from tests.harness.targets.kafka.kafka_files import make_archive, make_jars, make_maven

NOT_FOUND = (
    "echo '[ERROR] Failed to execute goal on project kafka: Could not resolve dependencies for project chaos:kafka:"
    "pom:1: Could not find artifact org.apache.kafka:kafka_2.13:jar:4.2.7 in central -> [Help 1]'; exit 1"
)
NO_HOST = "echo '[ERROR] Could not transfer artifact org.apache.kafka:kafka_2.13:pom:4.2.0: Unknown host'; exit 1"


class Images:
    def __init__(self, there: str = "", in_registry: str = "") -> None:
        self.there, self.in_registry = there, in_registry
        self.pulled: list[str] = []

    def has(self, tag: str) -> bool:
        return tag == self.there

    def pull(self, repository: str, version: str) -> bool:
        self.pulled.append(f"{repository}:{version}")
        return f"{repository}:{version}" == self.in_registry


@pytest.fixture(autouse=True)
def _apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache of its own, and no Maven client."""
    monkeypatch.setenv("CHAOS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.setattr("harness.targets.jars.maven.shutil.which", _only_in(tmp_path / "bin"))


def _only_in(folder: Path) -> object:
    return lambda name: str(folder / name) if (folder / name).exists() else None


def find(version: str = "4.2.0", home: Path | None = None, images: Images | None = None) -> source.Distribution:
    return source.find(version, None if home is None else str(home), images or Images(), lambda _: None)


def test_a_distribution_is_used_where_it_lies(tmp_path: Path) -> None:
    libs = make_jars(tmp_path / "kafka" / "libs", "4.3.0-SNAPSHOT", "0123456789abcdef")
    found = find("", tmp_path / "kafka")
    assert (found.version, found.commit, found.libs) == ("4.3.0-SNAPSHOT", "0123456789abcdef", libs)
    assert not (tmp_path / "cache").exists()


def test_an_archive_is_unpacked_once(tmp_path: Path) -> None:
    archive = make_archive(tmp_path / "kafka_2.13-4.2.0.tgz")
    first = find("4.2.0", archive)
    assert first.libs is not None and first.libs.is_relative_to(tmp_path / "cache") and first.version == "4.2.0"
    made = first.libs.stat().st_mtime_ns
    assert find("", archive).libs == first.libs and first.libs.stat().st_mtime_ns == made
    (first.libs / "kafka_2.13-4.2.0.jar").write_bytes(b"damaged")
    again = find("", archive)
    assert again.libs is not None and (again.libs / "kafka_2.13-4.2.0.jar").read_bytes() == b"jar"


def test_a_source_tree_has_what_was_built_in_it(tmp_path: Path) -> None:
    built = tmp_path / "kafka" / "core" / "build" / "distributions"
    make_archive(built / "kafka_2.13-4.4.0-SNAPSHOT.tgz", "4.4.0-SNAPSHOT")
    (built / "kafka_2.13-4.4.0-SNAPSHOT-site-docs.tgz").write_bytes(b"")
    assert find("", tmp_path / "kafka").version == "4.4.0-SNAPSHOT"
    make_archive(built / "kafka_2.13-4.5.0.tgz", "4.5.0")
    with pytest.raises(BadArguments, match=r"has 2 distributions .*; name one"):
        find("", tmp_path / "kafka")


def cut_off(archive: Path) -> None:
    archive.write_bytes(archive.read_bytes()[:-30])


def without(libs: Path, form: str) -> None:
    for jar in libs.glob(form):
        jar.unlink()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: None, "does not exist"),
        (lambda path: path.mkdir(), r"is no distribution of Kafka: it has no libs/.*gradlew releaseTarGz"),
        (lambda path: (path / "libs").mkdir(parents=True), r"not all of it: it has no kafka_2.13-<version>.jar"),
        (lambda path: path.write_bytes(b"no archive"), "cannot be unpacked: it is no .tgz, or damaged"),
        (lambda path: cut_off(make_archive(path)), "cannot be unpacked: it is cut off, or damaged"),
        (lambda path: os.mkfifo(path), "cannot be read: it is no regular file"),
        (lambda path: without(make_jars(path / "libs"), "kafka-metadata-*"), "it has no kafka-metadata-<version>.jar"),
    ],
)
def test_what_is_no_kafka_is_refused_in_a_sentence(tmp_path: Path, make: object, message: str) -> None:
    make(tmp_path / "home")  # type: ignore[operator]
    with pytest.raises((BadArguments, RuntimeUnavailable), match=message):
        find("", tmp_path / "home")
    assert list((tmp_path / "cache").glob("*")) == []


def test_another_version_than_asked_for_is_refused(tmp_path: Path) -> None:
    make_jars(tmp_path / "kafka" / "libs", "4.1.0")
    refused = r"is Kafka 4\.1\.0, and --target asks for 4\.2\.0; use --target kafka:4\.1\.0"
    with pytest.raises(BadArguments, match=refused):
        find("4.2.0", tmp_path / "kafka")


def test_an_image_that_is_there_comes_before_the_cache_and_a_registry_after_it(tmp_path: Path) -> None:
    assert find(images=Images(there="apache/kafka:4.2.0")).base == "apache/kafka:4.2.0"
    registry = Images(in_registry="apache/kafka:4.2.0")
    assert find(images=registry).base == "apache/kafka:4.2.0" and registry.pulled == ["apache/kafka:4.2.0"]
    with cache.being_filled("kafka-4.2.0", {}) as libs:
        for jar in make_jars(tmp_path / "made").iterdir():
            jar.rename(libs / jar.name)
    kept = Images(in_registry="apache/kafka:4.2.0")
    assert find(images=kept).libs == tmp_path / "cache" / "kafka-4.2.0" / "libs" and kept.pulled == []
    assert json.loads((tmp_path / "cache" / "kafka-4.2.0" / "manifest.json").read_text())["files"]


def test_maven_fetches_into_the_cache_and_says_how_far_it_is(tmp_path: Path) -> None:
    made = make_jars(tmp_path / "made")
    make_maven(tmp_path / "bin", f"echo '[INFO] Downloaded from central: https://x/a.jar (1 kB)'; cp {made}/* $OUT")
    told: list[str] = []
    found = source.find("4.2.0", None, Images(), told.append)
    assert found.version == "4.2.0" and found.libs == tmp_path / "cache" / "kafka-4.2.0" / "libs"
    assert told[-1] == "Fetching Kafka 4.2.0 by the Maven client: 1 jars"
    (tmp_path / "bin" / "mvn").unlink()
    assert find().libs == found.libs, "kept"


@pytest.mark.parametrize(
    ("script", "why"),
    [
        (None, r"there is no Maven client \(mvn\) on the PATH"),
        (NOT_FOUND, r"Maven finds no kafka_2.13-4.2.7.jar"),
        (NO_HOST, r"Maven reaches no repository: its host cannot be resolved"),
        ("exit 0", r"what Maven fetched is no Kafka"),
    ],
)
def test_why_there_is_no_kafka_is_one_sentence(tmp_path: Path, script: str | None, why: str) -> None:
    if script is not None:
        make_maven(tmp_path / "bin", script)
    with pytest.raises(RuntimeUnavailable, match=rf"There is no Kafka 4.2.0 to run: .*{why}.*; give a distribution by"):
        find()
    assert [path.name for path in (tmp_path / "cache").glob("*")] == [], "nothing is left"
    (tmp_path / "cache" / "kafka-4.2.0").mkdir()
    with pytest.raises(RuntimeUnavailable, match=r"to run: what is in .*kafka-4\.2\.0 is damaged, no registry gave"):
        find()
