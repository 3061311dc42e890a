"""A Java virtual machine with Apache Kafka's own classes: its command-line tools, and brokers of its own.

One for many commands: to start one takes as long as twenty of them. A tool is called by its `main`, with the arguments
that its script gives it; where it would end the process, it ends here.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
from py4j.java_gateway import CallbackServerParameters, GatewayParameters, JavaGateway, find_jar_path, launch_gateway
from py4j.protocol import Py4JJavaError

from harness.targets.jars import cache as kafkas
from harness.targets.kafka.sources import source
from spark_history.spark.java import find_java
from tests.harness.targets.test_contract_of_targets import kafka_to_run

VERSION: Final = "4.2.0"
#: Not among the Kafkas that are kept to be run: one needs no tools for that.
_TOOLS: Final = f"tools-of-kafka-{VERSION}"
_OPTIONS: Final = ["-Xmx768m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
_ENDS: Final = "An exception was raised by the Python Proxy"

#: As other tests with Kafka decide it: where there is a Maven client none is skipped.
needs_kafka = pytest.mark.skipif(
    not kafka_to_run() or (shutil.which("mvn") is None and kafkas.libs_of(_TOOLS) is None),
    reason="no Kafka, or none of its tools, and no Maven client",
)


@cache
def class_path() -> str:
    """Kafka's jars, and that of its tools, which a broker does without; fetched by the Maven client unless they are
    kept. Raises RuntimeUnavailable, CalledProcessError."""
    found = source.cached(VERSION) or source.fetch(VERSION, print)
    tools = kafkas.libs_of(_TOOLS)
    if tools is None:
        with kafkas.being_filled(_TOOLS, {"version": VERSION}) as libs:
            subprocess.run(
                ["mvn", "--batch-mode", "--quiet", "dependency:copy", f"-DoutputDirectory={libs}",
                 f"-Dartifact=org.apache.kafka:kafka-tools:{VERSION}"],
                check=True, timeout=300,
            )  # fmt: skip
        tools = kafkas.place_of(_TOOLS) / "libs"
    return os.pathsep.join([f"{found.libs}/*", f"{tools}/*"])


class _Ends:
    """In the place of the end of the process (org.apache.kafka.common.utils.Exit). statuses: of the tool that runs;
    None: none does."""

    def __init__(self) -> None:
        self.statuses: list[int] | None = None

    def execute(self, status: int, message: str | None) -> None:
        if self.statuses is None:  # a broker of this machine goes on without the thread
            logging.error("a thread of Kafka's ends its process with %s: %s; jvm.log may say why", status, message)
        else:
            self.statuses.append(status)
        raise AssertionError("so that nothing goes on")

    class Java:
        implements: Final = ["org.apache.kafka.common.utils.Exit$Procedure"]


class KafkaJvm:
    """java: its packages, as py4j has them."""

    def __init__(self, gateway: JavaGateway) -> None:
        self.java: Any = gateway.jvm
        self._gateway = gateway
        self._ends = _Ends()
        self.java.org.apache.kafka.common.utils.Exit.setExitProcedure(self._ends)

    def strings(self, values: Sequence[object]) -> Any:
        """A Java array of these."""
        array = self._gateway.new_array(self.java.java.lang.String, len(values))
        for index, value in enumerate(values):
            array[index] = str(value)
        return array

    def run(self, tool: str, *arguments: object, status: int = 0) -> str:
        """What the tool printed, to both of its outputs. tool: a class of Kafka's. status: the exit code that is
        expected."""
        system, io = self.java.java.lang.System, self.java.java.io
        printed = io.ByteArrayOutputStream()
        before = system.out, system.err
        stream = io.PrintStream(printed, True)
        system.setOut(stream)
        system.setErr(stream)
        statuses: list[int] = []
        self._ends.statuses = statuses
        try:
            self._class(tool).main(self.strings(arguments))
        except Py4JJavaError as error:
            if not statuses:
                raise AssertionError(f"{tool} {arguments}: {error}") from None
        finally:
            self._ends.statuses = None
            system.setOut(before[0])
            system.setErr(before[1])
        told = str(printed.toString()).partition(_ENDS)[0]
        ended = statuses[0] if statuses else 0
        assert ended == status, f"{tool} {arguments} ended with {ended}:\n{told}"
        return told

    def _class(self, name: str) -> Any:
        found = self.java
        for part in name.split("."):
            found = getattr(found, part)
        return found


@contextlib.contextmanager
def kafka_jvm(log: Path) -> Iterator[KafkaJvm]:
    """log: what it says beside what the tools print, such as the errors of brokers. It ends with whatever still runs in
    it."""
    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # a tool that ends is an error to it
    with log.open("a", buffering=1) as said:
        port, token, process = _launch(said)
        gateway = JavaGateway(
            gateway_parameters=GatewayParameters(port=port, auth_token=token, auto_convert=True),
            callback_server_parameters=CallbackServerParameters(port=0, daemonize=True, daemonize_connections=True),
        )
        try:
            gateway.java_gateway_server.resetCallbackClient(
                gateway.jvm.java.net.InetAddress.getByName("127.0.0.1"),
                gateway.get_callback_server().get_listening_port(),
            )
            yield KafkaJvm(gateway)
        finally:
            gateway.shutdown_callback_server()
            gateway.close()
            process.kill()
            process.wait()


def _launch(said: Any) -> tuple[int, str, subprocess.Popen[bytes]]:
    port, token, process = launch_gateway(
        jarpath=find_jar_path(), classpath=class_path(), javaopts=_OPTIONS, java_path=str(find_java()),
        die_on_exit=True, enable_auth=True, return_proc=True, redirect_stderr=said,
        redirect_stdout=said,
    )  # fmt: skip
    return port, token, process
