from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clusters.real_zookeeper import RealZooKeeper

from .worlds import Model, Real, World


@pytest.fixture(scope="package")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealZooKeeper]:
    servers = RealZooKeeper(Path(tmp_path_factory.mktemp("zookeeper")))
    try:
        servers.start()
        yield servers
    finally:
        servers.stop()


@pytest.fixture(params=["model", "Apache ZooKeeper"])
def world(request: pytest.FixtureRequest) -> World:
    return Model() if request.param == "model" else Real(request.getfixturevalue("zookeeper"))
