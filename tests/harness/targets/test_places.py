"""What a host gets of a target is where the target's image has it."""

from __future__ import annotations

import json
import re
from pathlib import PurePosixPath

import pytest

from harness.targets.kafka.target import _package as kafka_package
from harness.targets.kraft.target import Kraft
from harness.targets.target import CONFIGURATION, Package
from harness.targets.v2.target import V2
from tests import ROOT


def copied(package: Package) -> dict[str, str]:
    """By COPY's source, its target: as the Dockerfile has it."""
    lines = re.findall(r"^COPY (\S+) (\S+)$", package.dockerfile.read_text(), re.MULTILINE)
    return {"" if source == "." else source: target for source, target in lines}


PACKAGES = [Kraft().packages()[0], V2().packages()[0], kafka_package(ROOT / "tests", "")]


@pytest.mark.parametrize("package", PACKAGES, ids=lambda each: each.name)
def test_each_part_has_the_place_that_it_has_in_the_image(package: Package) -> None:
    images = copied(package)
    assert images and package.places.keys() == package.parts.keys()
    for part, place in package.places.items():
        source = max((each for each in images if PurePosixPath(part).is_relative_to(each or ".")), key=len)
        within = PurePosixPath(part).relative_to(source or ".")
        assert place == str(PurePosixPath(images[source], within)), part


@pytest.mark.parametrize("package", PACKAGES, ids=lambda each: each.name)
def test_the_process_is_what_the_image_starts(package: Package) -> None:
    text = package.dockerfile.read_text()
    started = [
        word for line in re.findall(r"^(?:ENTRYPOINT|CMD) (\[.*\])$", text, re.MULTILINE) for word in json.loads(line)
    ]
    assert list(package.command) == started
    assert CONFIGURATION in text or "entry.sh" in text
