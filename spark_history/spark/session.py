"""One Spark session a process, started in the background: that takes longer than most checks.

Spark is where `--spark` says (see master.py): in this process's own JVM, on a standalone cluster, or behind a Spark
Connect server. Whoever has no session yet gets one of the master chosen for the process; a second master is refused.

Executors elsewhere get the code by shipping.py, and before anything is asked of them they tell in a first, tiny job
what they are: so a wrong Python, a missing package or a cluster without free workers is one sentence. Nothing here
waits for ever: REACH_S for a network address, START_S for the session, WORKERS_S for the first job.
"""

from __future__ import annotations

import importlib.util
import os
import socket
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import pyarrow as pa
from pyspark.sql import SparkSession

from spark_history.spark import master as masters
from spark_history.spark.failures import SparkUnavailable, brief, explain
from spark_history.spark.java import find_java, java_version, make_launcher
from spark_history.spark.master import LOOPBACK, BadMaster, Master
from spark_history.spark.shipping import BORROWED, OURS, ship

__all__ = ["SparkUnavailable", "find_java", "java_version", "start", "start_in_background"]

REACH_S: Final = 10.0
START_S: Final = 90.0  # a standalone master that is none is given up by Spark itself after 60 s
WORKERS_S: Final = 120.0
SETTLE_S: Final = 0.5  # executors register one after another: none for so long, and they are all there
OLDEST_SERVER: Final = 4  # Spark's first version that Connect ships pyfiles and takes Arrow back with
_CONNECT_RETRIES: Final = 6  # about a minute; PySpark's own bound is ten
_ROOT: Final = Path(__file__).resolve().parents[2]

_T = TypeVar("_T")


def start_in_background(
    master: str | None = None, *, ui_port: int | None = None, log: Path | None = None
) -> Future[SparkSession]:
    """Start Spark, or find it started, in a thread. The future's result() may raise SparkUnavailable.

    master: as for --spark; None: the one chosen for this process (master.choose()). ui_port: of Spark's own web page,
    if wanted. log: where the output of this process's JVM goes.
    """
    return _in_thread(lambda: start(master, ui_port=ui_port, log=log))


def start(master: str | None = None, *, ui_port: int | None = None, log: Path | None = None) -> SparkSession:
    """As start_in_background(), but wait."""
    global _running
    try:
        wanted = masters.chosen() if master is None else masters.parse(master)
    except BadMaster as error:
        raise SparkUnavailable(str(error)) from None
    with _starting:
        if _running is not None and not _has_stopped(_running.spark):
            if _running.url == wanted.url or _running.kind == wanted.kind == "local":
                return _running.spark  # another number of processors would change nothing that is found
            raise SparkUnavailable(
                f"Spark runs on {_running.text} in this process, and one process has one; {wanted.text} takes another"
            )
        begin = {"local": _start_local, "standalone": _start_standalone, "connect": _start_connect}[wanted.kind]
        spark = begin(wanted, ui_port, log)
        _running = _Running(wanted.url, wanted.text, wanted.kind, spark)
        return spark


@dataclass(frozen=True)
class _Running:
    url: str
    text: str
    kind: str
    spark: SparkSession


_starting = threading.Lock()
_running: _Running | None = None


def is_connect(spark: SparkSession) -> bool:
    return type(spark).__module__.startswith("pyspark.sql.connect")


def is_local(spark: SparkSession) -> bool:
    """Whether its executors are this machine for certain, with the same files and the same code."""
    return not is_connect(spark) and str(spark.sparkContext.master).startswith("local")


def _has_stopped(spark: SparkSession) -> bool:
    session: Any = spark
    return bool(session.is_stopped if is_connect(spark) else session._sc._jsc is None)


# --- in this process's own JVM: local, and the driver of a standalone cluster ---------------------------------------


def _start_local(master: Master, ui_port: int | None, log: Path | None) -> SparkSession:
    settings = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.executorEnv.PYTHONPATH": os.pathsep.join(filter(None, (str(_ROOT), os.environ.get("PYTHONPATH")))),
    }
    spark = _start_jvm(master, settings, ui_port, log)
    try:
        _first_job(spark, spark.sparkContext.defaultParallelism)
    except Exception as error:
        raise _unavailable(master, error, log) from error
    return spark


def _start_standalone(master: Master, ui_port: int | None, log: Path | None) -> SparkSession:
    # The address under which the master sees this machine is the one at which executors will find the driver.
    settings = {"spark.driver.host": os.environ.get("SPARK_LOCAL_IP") or reach(master)}
    starting = _in_thread(lambda: _start_jvm(master, settings, ui_port, log))
    try:
        spark = starting.result(START_S)
    except FutureTimeout:
        _kill_jvm()
        raise _silent(master, START_S, "a standalone master of this version of Spark") from None
    _equip(master, spark, log)
    _await_executors(spark)
    return spark


def _start_jvm(master: Master, settings: Mapping[str, str], ui_port: int | None, log: Path | None) -> SparkSession:
    # pandas, which PySpark asks for, is not used here.
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
    launcher = make_launcher(find_java(), log)
    everywhere = {
        # The rows do not pass through the JVM, so compiling its code well costs more than it saves.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.driver.memory": os.environ.get("SPARK_DRIVER_MEMORY", "1g"),
        "spark.log.level": "ERROR",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "8",
        "spark.ui.enabled": str(ui_port is not None).lower(),
        "spark.ui.showConsoleProgress": "false",
    }
    if ui_port is not None:
        everywhere["spark.ui.port"] = str(ui_port)
    # SPARK_LOCAL_IP is all that says on which address the pages are; where the driver is, settings say.
    only_here = {"SPARK_LOCAL_IP": LOOPBACK} if ui_port is not None else {}
    environment = {
        "JAVA_HOME": str(launcher), "PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON", sys.executable), **only_here,
    }  # fmt: skip
    os.environ.pop("SPARK_CONNECT_MODE_ENABLED", None)  # what a Connect session before this one has left
    try:
        with _environment(environment):
            builder = SparkSession.Builder().appName("chaos").master(master.url)
            return builder.config(map={**everywhere, **settings}).getOrCreate()
    except Exception as error:
        raise _unavailable(master, error, log) from error


def _kill_jvm() -> None:
    """End the JVM of a session that does not come up; the thread that waits for it ends with an error nobody reads."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    if gateway is not None and gateway.proc is not None:
        gateway.proc.kill()


def _await_executors(spark: SparkSession) -> None:
    """Until no more of them come: how much runs at a time is asked of those that are there."""
    status = spark.sparkContext._jsc.sc()
    known, since = 0, time.monotonic()
    deadline = since + 10 * SETTLE_S
    while time.monotonic() - since < SETTLE_S and time.monotonic() < deadline:
        now = int(status.getExecutorMemoryStatus().size())
        if now != known:
            known, since = now, time.monotonic()
        time.sleep(SETTLE_S / 10)


@contextmanager
def _environment(changes: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


# --- Spark Connect --------------------------------------------------------------------------------------------------


def _start_connect(master: Master, ui_port: int | None, log: Path | None) -> SparkSession:
    if ui_port is not None:
        raise SparkUnavailable(
            f"Spark's own pages are those of its server with {master.text}; leave --spark-ui-port out"
        )
    for module in ("grpc", "grpc_status", "google.rpc", "zstandard"):
        if not _is_installed(module):
            raise SparkUnavailable(f"Spark Connect needs the package {module}: pip install 'pyspark[connect]'")
    reach(master)
    try:
        spark = _in_thread(lambda: _connect(master)).result(START_S)
        version = _in_thread(lambda: str(spark.version)).result(START_S)
    except FutureTimeout:
        raise _silent(master, START_S, "a Spark Connect server") from None
    except Exception as error:
        raise _unavailable(master, error, None) from error
    if int(version.partition(".")[0]) < OLDEST_SERVER:
        raise SparkUnavailable(f"{master.text} is Spark {version}; Spark {OLDEST_SERVER} or newer is needed")
    _equip(master, spark, None)
    return spark


def _connect(master: Master) -> SparkSession:
    import grpc
    from pyspark.sql.connect.client import DefaultChannelBuilder
    from pyspark.sql.connect.client.retries import DefaultPolicy
    from pyspark.sql.connect.session import SparkSession as ConnectSession

    channels = DefaultChannelBuilder(master.url)
    channel = channels.toChannel()
    try:
        grpc.channel_ready_future(channel).result(REACH_S)
    except grpc.FutureTimeoutError:
        raise _silent(master, REACH_S, "a Spark Connect server") from None
    finally:
        channel.close()
    spark: Any = ConnectSession.Builder().remote(master.url).create()
    spark.client.set_retry_policies([DefaultPolicy(max_retries=_CONNECT_RETRIES)])
    session: SparkSession = spark
    return session


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


# --- executors elsewhere --------------------------------------------------------------------------------------------


def reach(master: Master) -> str:
    """This machine's address as seen from there. Raises SparkUnavailable if nobody answers within REACH_S."""
    reasons = []
    for host, port in master.addresses:
        try:
            connecting = _in_thread(partial(socket.create_connection, (host, port), REACH_S))
            with connecting.result(REACH_S + 1) as connection:
                return str(connection.getsockname()[0])
        except FutureTimeout:
            reasons.append(f"{host}:{port} did not answer within {REACH_S:.0f} s")
        except OSError as error:
            reasons.append(f"{host}:{port}: {error.strerror or error}")
    raise SparkUnavailable(f"Spark cannot be reached at {master.text} ({'; '.join(reasons)})")


def _equip(master: Master, spark: SparkSession, log: Path | None) -> None:
    """Send the code, and find out by a first job whether the executors can run it. Raises SparkUnavailable."""
    try:
        ship(spark, OURS)
        _run_first_job(master, spark)
    except BaseException as error:
        with suppress(Exception):
            _in_thread(spark.stop).result(REACH_S)
        if isinstance(error, Exception):
            raise _unavailable(master, error, log) from error
        raise


def _run_first_job(master: Master, spark: SparkSession) -> None:
    tried: list[str] = []
    while True:
        try:
            missing = _in_thread(lambda: _first_job(spark, 2)).result(WORKERS_S)
            break
        except FutureTimeout:
            raise SparkUnavailable(
                f"no executor of {master.text} took a first task within {WORKERS_S:.0f} s: "
                "has it workers with free cores and memory, and can they reach this machine?"
            ) from None
        except Exception as error:
            own = f"python{sys.version_info[0]}.{sys.version_info[1]}"
            if is_connect(spark) or tried or "PYSPARK_PYTHON" in os.environ or "Cannot run program" not in str(error):
                raise
            tried.append(own)
            spark.sparkContext.pythonExec = own  # theirs, where there is none at this interpreter's path
    borrowed = [name for name in BORROWED if name in missing]
    if borrowed:
        ship(spark, borrowed)
    if lacking := sorted(set(missing) - set(borrowed)):
        raise SparkUnavailable(f"the executors of {master.text} lack {' and '.join(lacking)} in {_python_of(spark)}")


def _first_job(spark: SparkSession, tasks: int) -> Sequence[str]:
    """Start the Python workers and compile the path that every check takes; the packages that they lack."""
    wanted = ("numpy", *BORROWED)

    def look(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from importlib.util import find_spec

        missing = [name for name in wanted if find_spec(name) is None]
        for batch in batches:
            yield pa.record_batch([pa.array([",".join(missing)] * batch.num_rows, pa.string())], names=["missing"])

    rows = spark.range(0, tasks, 1, tasks).mapInArrow(look, "missing string").toArrow()["missing"].to_pylist()
    return sorted({name for row in rows for name in row.split(",") if name})


def _python_of(spark: SparkSession) -> str:
    return "the server's Python" if is_connect(spark) else str(spark.sparkContext.pythonExec)


# --- what goes wrong ------------------------------------------------------------------------------------------------


def _unavailable(master: Master, error: Exception, log: Path | None) -> SparkUnavailable:
    if isinstance(error, SparkUnavailable):
        return error
    where = "" if master.kind == "local" else f" on {master.text}"
    more = f"; {log} says more" if log else ""
    return SparkUnavailable(f"Spark did not start{where} ({explain(error) or brief(error)}){more}")


def _silent(master: Master, seconds: float, what: str) -> SparkUnavailable:
    return SparkUnavailable(f"{master.text} answers, but not as {what} within {seconds:.0f} s")


def _in_thread(work: Callable[[], _T]) -> Future[_T]:
    """For what may never return: the thread does not keep the process from ending."""
    future: Future[_T] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name="spark-start", daemon=True).start()
    return future
