"""Real Spark servers for tests, of the installed PySpark: a standalone master with workers, and a Connect server.

Every server is a process group of its own, on an ephemeral port of 127.0.0.1, its files under a temporary directory;
leaving the context kills the groups, whatever happened.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pyspark

from spark_history.spark.java import find_java, make_launcher

START_S: Final = 60.0
_HOME: Final = Path(pyspark.__file__).parent
_JAVA_OPTIONS: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
LOG: Final = "spark.log"  # of all processes of a directory
EXECUTOR_MEMORY: Final = "512m"  # of every worker, so an application must not ask for more


def environment(directory: Path, **more: str) -> dict[str, str]:
    """For a Spark process, also for a driver: a Java that Spark can use, and nothing of Spark's outside `directory`."""
    ours = {
        "JAVA_HOME": str(make_launcher(find_java(), directory / LOG, apart=False)),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(directory / "local"),
        "SPARK_WORKER_DIR": str(directory / "work"),
        "SPARK_EXECUTOR_MEMORY": EXECUTOR_MEMORY,
        "SPARK_DAEMON_MEMORY": "256m",
        # Of executors too, which no setting of a daemon reaches.
        "JDK_JAVA_OPTIONS": f"{os.environ.get('JDK_JAVA_OPTIONS', '')} {_JAVA_OPTIONS}".strip(),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("SPARK_", "PYSPARK_")) and k != "PYTHONPATH"}
    return kept | ours | more


class Cluster:
    """A standalone master and its workers."""

    def __init__(self, master: str, processes: Sequence[subprocess.Popen[bytes]]) -> None:
        self.master = master
        self.processes = processes


@contextmanager
def standalone(directory: Path, *, workers: int = 2, cores: int = 1, **more: str) -> Iterator[Cluster]:
    """spark://127.0.0.1:PORT with so many workers of so many cores and 512 MB each. more: of their environment."""
    directory.mkdir(parents=True, exist_ok=True)
    port = free_port()
    url = f"spark://127.0.0.1:{port}"
    with _group() as processes:
        variables = environment(directory, **more)
        where = ["--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]
        processes.append(_launch(["org.apache.spark.deploy.master.Master", *where], variables, directory))
        for _ in range(workers):
            where = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0", "--work-dir", str(directory / "work")]
            size = ["--cores", str(cores), "--memory", EXECUTOR_MEMORY]
            command = ["org.apache.spark.deploy.worker.Worker", *where, *size, url]
            processes.append(_launch(command, variables, directory))
        _await(lambda: _log(directory).count("Registering worker") >= workers, processes, directory)
        yield Cluster(url, processes)


@contextmanager
def connect_server(directory: Path, *, master: str = "local[2]", **more: str) -> Iterator[str]:
    """sc://127.0.0.1:PORT, a server that is its own cluster, or the driver of another. more: of its environment."""
    directory.mkdir(parents=True, exist_ok=True)
    port = free_port()
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": _JAVA_OPTIONS,
        "spark.ui.enabled": "false",
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
    }
    given = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    server = "org.apache.spark.sql.connect.service.SparkConnectServer"
    command = ["org.apache.spark.deploy.SparkSubmit", "--master", master, *given, "--class", server, "spark-internal"]
    python = more.pop("PYSPARK_PYTHON", sys.executable)
    with _group() as processes:
        variables = environment(directory, PYSPARK_PYTHON=python, SPARK_DAEMON_MEMORY="768m", **more)
        processes.append(_launch(command, variables, directory))
        _await(lambda: _is_listening(port), processes, directory)
        yield f"sc://127.0.0.1:{port}"


@contextmanager
def _group() -> Iterator[list[subprocess.Popen[bytes]]]:
    processes: list[subprocess.Popen[bytes]] = []
    try:
        yield processes
    finally:
        for process in processes:
            for number in (signal.SIGTERM, signal.SIGKILL):
                try:
                    os.killpg(process.pid, number)
                except ProcessLookupError:
                    break
                try:
                    process.wait(2)
                except subprocess.TimeoutExpired:
                    continue
        for process in processes:
            process.wait(10)


def _launch(command: Sequence[str], variables: dict[str, str], directory: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        ["bash", _HOME / "bin" / "spark-class", *command], env=variables, stdin=subprocess.DEVNULL, cwd=directory,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip


def free_port() -> int:
    """One that nobody has now; Spark's servers want to be told theirs before they start."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _is_listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _log(directory: Path) -> str:
    try:
        return (directory / LOG).read_text(errors="replace")
    except FileNotFoundError:
        return ""


def _await(ready: Callable[[], bool], processes: Sequence[subprocess.Popen[bytes]], directory: Path) -> None:
    deadline = time.monotonic() + START_S
    while not ready():
        if any(process.poll() is not None for process in processes) or time.monotonic() > deadline:
            raise AssertionError(f"Spark's servers do not start: {_log(directory)[-4_000:]}")
        time.sleep(0.1)
