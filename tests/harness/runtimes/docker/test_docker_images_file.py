"""`chaos image save` and `load`: the images of nodes as a file."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest

from harness.errors import BadArguments, HarnessFailure
from harness.plan import registry
from harness.runtimes.docker.images import archive, images

pytestmark = pytest.mark.docker


def test_what_is_saved_is_what_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "images.tar.gz"
    tags = archive.save(path, registry.make_target("kraft"), lambda line: None)
    assert [tag.partition(":")[0] for tag in tags] == ["chaos-node", "chaos-agent", "chaos-base"]
    assert images.base_tag() in tags
    with tarfile.open(path, "r:gz") as tar:
        manifest = json.load(tar.extractfile("manifest.json"))  # type: ignore[arg-type]
    assert sorted(tag for image in manifest for tag in image["RepoTags"]) == sorted(tags)
    assert sorted(archive.load(path)) == sorted(tags)
    assert list(tmp_path.iterdir()) == [path]


def test_what_is_no_such_file_is_said_to_be(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no archive")
    for path, message in (("text", "holds no image"), ("nowhere", "No such file"), (".", "cannot be read")):
        with pytest.raises(BadArguments, match=message):
            archive.load(tmp_path / path)
    with pytest.raises(HarnessFailure, match="cannot be written"):
        archive.save(tmp_path / "no" / "folder.tar", registry.make_target("kraft"), lambda line: None)
