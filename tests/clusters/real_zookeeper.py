"""Apache ZooKeeper over loopback: three servers, each a Java process on a directory of its own."""

from __future__ import annotations

import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Final

from cluster_image.network import Address
from harness.targets.v2.zookeeper import distribution
from tests.clusters.local_cluster import free_ports

_START_S: Final = 60.0


class RealZooKeeper:
    """Servers 1 to 3."""

    def __init__(self, directory: Path, **settings: str) -> None:
        self._directory = directory
        ports = iter(free_ports(9))
        self._servers = {n: ("127.0.0.1", next(ports), next(ports), next(ports)) for n in (1, 2, 3)}
        self._settings = settings
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    @property
    def addresses(self) -> dict[int, Address]:
        return {n: Address(host, client) for n, (host, _, _, client) in self._servers.items()}

    def start(self, *numbers: int) -> None:
        """These servers, or all. Returns once they serve."""
        for number in numbers or self._servers:
            self._processes[number] = self._start(number)
        until = time.monotonic() + _START_S
        for number in numbers or self._servers:
            while not self.serves(number):
                if time.monotonic() > until:
                    raise TimeoutError(f"server {number} does not serve: see {self._directory / str(number)}.log")
                time.sleep(0.05)

    def _start(self, number: int) -> subprocess.Popen[bytes]:
        data = self._directory / str(number)
        data.mkdir(parents=True, exist_ok=True)
        (data / "myid").write_text(str(number))
        properties = distribution.configuration(number, str(data), self._servers, **self._settings)
        file = self._directory / f"{number}.cfg"
        file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
        java = distribution.java_home() / "bin" / "java"
        with (self._directory / f"{number}.log").open("ab") as log:
            return subprocess.Popen(
                distribution.command(java, distribution.jars(), file), stdout=log, stderr=log, cwd=self._directory
            )

    def ask(self, number: int, command: str) -> str:
        """One of ZooKeeper's four-letter words. "": no answer."""
        try:
            with socket.create_connection(self.addresses[number], timeout=2) as connection:
                connection.sendall(command.encode())
                answer = b""
                while received := connection.recv(65536):
                    answer += received
        except OSError:
            return ""
        return answer.decode()

    def serves(self, number: int) -> bool:
        return self.ask(number, "ruok") == "imok" and "Mode:" in self.ask(number, "srvr")

    def leader(self) -> int:
        return next(n for n in self._processes if "Mode: leader" in self.ask(n, "srvr"))

    def kill(self, number: int) -> None:
        process = self._processes.pop(number)
        process.send_signal(signal.SIGKILL)
        process.wait()

    def stop(self) -> None:
        for number in list(self._processes):
            self.kill(number)
