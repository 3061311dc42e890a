"""A cluster of real processes over loopback, `python -m cluster_image node.properties` each."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from tests import ROOT
from tests.clusters.local_cluster import free_ports


class ProcessCluster:
    """Brokers 1.., controllers 101... Each has its Prometheus metrics on a port of its own. spares: further brokers,
    which start() leaves out."""

    def __init__(self, directory: Path, brokers: int, controllers: int = 1, spares: int = 0, **settings: str) -> None:
        self.directory = directory
        self._voters = range(101, 101 + controllers)
        self._first = [*self._voters, *range(1, brokers + 1)]
        self.ids = [*self._first, *range(brokers + 1, brokers + spares + 1)]
        ports = free_ports(2 * len(self.ids))
        self.ports = dict(zip(self.ids, ports, strict=False))
        self.metrics_ports = dict(zip(self.ids, ports[len(self.ids) :], strict=True))
        self._settings = settings
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    def properties(self, node_id: int) -> Path:
        disk = self.directory / str(node_id)
        disk.mkdir(exist_ok=True)
        settings = {
            "node.id": node_id,
            "process.roles": "controller" if node_id > 100 else "broker",
            "cluster.id": "processes",
            "controller.quorum.voters": ",".join(f"{voter}@127.0.0.1:{self.ports[voter]}" for voter in self._voters),
            "listeners": f"127.0.0.1:{self.ports[node_id]}",
            "log.dirs": disk,
            "metrics.port": self.metrics_ports[node_id],
            **self._settings,
        }
        path = self.directory / f"{node_id}.properties"
        path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        return path

    def pid(self, node_id: int) -> int | None:
        """None once its process has ended."""
        process = self._processes[node_id]
        return process.pid if process.poll() is None else None

    def log(self, node_id: int) -> str:
        return (self.directory / f"{node_id}.log").read_text()

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{self.ports[node_id]}" for node_id in self.ids if node_id < 100)

    def start(self, *ids: int) -> None:
        """These nodes, or all but the spares; returns once they have started."""
        started = ids or self._first
        for node_id in started:
            with (self.directory / f"{node_id}.log").open("wb") as output:
                self._processes[node_id] = subprocess.Popen(
                    [sys.executable, "-m", "cluster_image", self.properties(node_id)],
                    cwd=ROOT, stdout=output, stderr=subprocess.STDOUT,
                )  # fmt: skip
        for node_id in started:
            self._wait_until_started(node_id)

    def shut_down(self, node_id: int) -> None:
        """As an operator does it; returns once it has ended."""
        self._processes[node_id].terminate()
        self._processes[node_id].wait(30)

    def _wait_until_started(self, node_id: int) -> None:
        deadline = time.monotonic() + 30
        while '"message": "started"' not in self.log(node_id):
            if self._processes[node_id].poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"node {node_id} has not started:\n{self.log(node_id)}")
            time.sleep(0.05)

    def stop(self) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait()


@contextlib.contextmanager
def process_cluster(directory: Path, brokers: int = 2, spares: int = 0, **settings: str) -> Iterator[ProcessCluster]:
    cluster = ProcessCluster(directory, brokers, spares=spares, **settings)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


def run_node(*arguments: object) -> subprocess.CompletedProcess[str]:
    """`python -m cluster_image …`, to its end."""
    return subprocess.run(
        [sys.executable, "-m", "cluster_image", *map(str, arguments)],
        cwd=ROOT, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
