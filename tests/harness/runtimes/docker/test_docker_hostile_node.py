"""A node that turns against its machine: links, FIFOs, sparse files, devices and a million names on its volume.

Nothing of the host is read or filled, every verb of the agent still works, and what was strange is told.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.record.collected import Collected, with_problems
from harness.runtimes.docker import cleanup, engine, seccomp
from harness.runtimes.docker.agent_container import CAPABILITIES
from harness.runtimes.docker.node import DockerNode
from harness.runtimes.docker.runtime import DockerCluster, DockerRuntime
from harness.runtimes.nodes.asking import AgentError
from tests.clusters.stand_in import STAND_IN
from tests.harness.runtimes.docker.test_docker_runtime import ask, plan, quiet, removed_soon

pytestmark = [pytest.mark.docker, pytest.mark.timeout(400)]

SECRET = "a file of the host that a node would like to see"
#: More than are looked at; `make nightly` tries a million.
NAMES = int(os.environ.get("CHAOS_HOSTILE_NAMES", "120000"))
#: Run in the node's container, by its user.
HOSTILE = """
import os, socket
os.chdir("/data")
os.makedirs("t-0", exist_ok=True)
for number, name in enumerate(("00000000000000000000.log", "00000000000000000100.log")):
    with open(f"t-0/{name}", "wb") as file:
        file.write(bytes([number]) * 100)
for name in ("link", "link.log", "t-0/link.log", "partition.metadata", ".chaos-filler", "other"):
    os.symlink("SECRET", name)
os.symlink("FOLDER", "t-1")
os.symlink("/", "t-2")
os.symlink("/proc/1/environ", "environ")
os.symlink("/dev/zero", "zero.log")
for name in ("fifo", "fifo.log", "t-0/fifo.log"):
    os.mkfifo(name)
for name, size in (("sparse.log", 15 << 40), ("sparse", 1 << 40), ("t-0/sparse.log", 1 << 30)):
    try:
        with open(name, "wb") as file:
            file.truncate(size)
    except OSError as error:  # beyond what a process here may write
        print(name, error.strerror)
        with open(name, "wb") as file:
            file.truncate(2 << 30)
with open("set-uid", "wb") as file:
    file.write(b"#!/bin/sh")
os.chmod("set-uid", 0o6755)
socket.socket(socket.AF_UNIX).bind("socket")
open("\\x1b[2Jescape", "wb").close()
try:
    os.mknod("device", 0o600 | 0x2000, os.makedev(1, 5))
    print("made a device")
except OSError as error:
    print(error.strerror)
os.sync()
"""
MANY = """
import os
os.makedirs("/data/many", exist_ok=True)
os.chdir("/data/many")
made = 0
try:
    while made < NAMES:
        os.close(os.open(str(made), os.O_CREAT | os.O_WRONLY))
        made += 1
except OSError as error:
    print(error)
os.sync()
print(made)
"""


def in_node(node: DockerNode, script: str) -> str:
    api = engine.connect()
    asked = api.exec_create(node.process, ["python3", "-c", script])["Id"]
    said = api.exec_start(asked).decode()
    assert api.exec_inspect(asked)["ExitCode"] == 0, said
    return said


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("host")
    folder.chmod(0o755)
    (folder / "secret").write_text(SECRET)
    (folder / "secret").chmod(0o644)
    return folder


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as made:
        yield made


@pytest.fixture(scope="module")
def cluster(runner: asyncio.Runner, tmp_path_factory: pytest.TempPathFactory, host: Path) -> Iterator[DockerCluster]:
    """broker-1 is hostile, the others are not."""
    wanted = plan("hostile")
    try:
        started = runner.run(DockerRuntime(STAND_IN).start(wanted, tmp_path_factory.mktemp("run"), quiet))
        runner.run(ask(started.brokers[0], "uid"))
        script = HOSTILE.replace("SECRET", str(host / "secret")).replace("FOLDER", str(host))
        assert "made a device" not in in_node(started.brokers[0], script)
        if os.getuid() == 0:  # what no container without privileges can, we do for it
            volume = engine.VOLUMES / wanted.run / "broker-1"
            for name, kind, number in (("zero", stat.S_IFCHR, (1, 5)), ("loop.log", stat.S_IFBLK, (7, 0))):
                os.mknod(volume / name, kind | 0o666, os.makedev(*number))
        yield started
        runner.run(started.stop())
        assert removed_soon(wanted.run)
    finally:
        cleanup.remove_run(engine.connect(), wanted.run)


def bytes_in(folder: Path) -> int:
    return sum(path.lstat().st_blocks * 512 for path in folder.rglob("*"))


def assert_nothing_of_the_host_is_in(folder: Path) -> None:
    for path in folder.rglob("*"):
        status = path.lstat()
        assert stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode), path
        assert not status.st_mode & 0o6077, f"{path} is open to others, or set-uid: {oct(status.st_mode)}"
        assert not stat.S_ISREG(status.st_mode) or SECRET.encode() not in path.read_bytes()


def test_a_hostile_disk_is_copied_without_anything_of_the_host_and_told(
    runner: asyncio.Runner, cluster: DockerCluster, tmp_path: Path, host: Path
) -> None:
    async def scenario() -> Any:
        await ask(cluster.brokers[1], "append", "collect-0/0.log", 2, 1, "sync")
        async with asyncio.timeout(60):
            return await cluster.collect(tmp_path)

    free = shutil.disk_usage(tmp_path).free
    problems = runner.run(scenario())
    assert set(problems) == {"broker-1"}, "the others' disks are whole"
    reported = problems["broker-1"]
    kinds = ["symbolic link", "3 × FIFO", "1 × socket", "set-uid or set-gid file", "sparse", "name that is not plain"]
    for kind in kinds + ["1 × block device", "1 × character device"] * (os.getuid() == 0):
        assert kind in reported, reported
    assert reported.isprintable()
    disks = tmp_path / "disks"
    assert (disks / "broker-2/collect-0/0.log").stat().st_size == 2 * 69
    assert (disks / "broker-1/t-0/00000000000000000000.log").read_bytes() == bytes(100)
    assert not (disks / "broker-1/t-1").exists() and not (disks / "broker-1/link").exists()
    assert_nothing_of_the_host_is_in(disks)
    assert bytes_in(tmp_path) < 10 << 20
    assert free - shutil.disk_usage(tmp_path).free < 1 << 30
    piece = with_problems([Collected("broker-1", "disk", 1)], problems)
    assert piece == [Collected("broker-1", "disk", 1, reported)]


def test_every_fault_of_a_disk_works_on_a_hostile_one_and_takes_nothing_of_the_host(
    runner: asyncio.Runner, cluster: DockerCluster, host: Path
) -> None:
    async def scenario() -> None:
        node = cluster.brokers[0]
        async with asyncio.timeout(150):
            assert "FIFO" in (await node.drop_clean_pages())["not_surveyed"]
            assert (await node.fill_disk())["free_bytes"] == 0
            await node.free_disk()
            assert "FIFO" in (await node.cut_power())["not_surveyed"]
            await node.restore_power()
            await ask(node, "uid")
            assert "FIFO" in (await node.lose_page_cache())["not_surveyed"]
            await node.start()
            choice = {"what": ["segment"], "which": 0.0, "how": "flip", "where": 0.5, "bit": 0.5}
            assert (await node.damage_file(choice))["file"] == "t-0/00000000000000000000.log"
            await node.restore_file()
            await node.replace(77)
            await node.put_back()
            await node.fail_disk()
            await node.repair_disk()
            await node.start()
            await ask(node, "uid")

    runner.run(scenario())
    assert (host / "secret").read_text() == SECRET and (host / "secret").stat().st_uid == os.getuid()
    assert os.listdir(host) == ["secret"]


@pytest.mark.nightly
def test_names_without_end_keep_nobody_and_are_told(
    runner: asyncio.Runner, cluster: DockerCluster, tmp_path: Path
) -> None:
    node = cluster.brokers[0]
    # ext4 has an inode for each 16 KiB, of 8 GiB 524,288: of a million names as many as there can be.
    made = int(in_node(node, MANY.replace("NAMES", str(NAMES))).splitlines()[-1])
    assert made >= min(NAMES, 400_000)

    async def scenario() -> Any:
        async with asyncio.timeout(240):
            evidence = await node.cut_power()
            await node.restore_power()
            return evidence, await cluster.collect(tmp_path)

    evidence, problems = runner.run(scenario())
    assert "names beyond the 100,000" in evidence["not_surveyed"]
    assert "names beyond the 100,000" in problems["broker-1"] and set(problems) == {"broker-1"}
    assert sum(1 for _ in (tmp_path / "disks" / "broker-1").rglob("*")) <= 100_000
    assert_nothing_of_the_host_is_in(tmp_path / "disks")
    assert bytes_in(tmp_path) < 500 << 20


def test_one_disk_that_cannot_be_copied_keeps_no_other_from_being_copied(
    runner: asyncio.Runner, cluster: DockerCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asking = cluster._agent.ask

    async def refuse(node: str, do: str, **arguments: Any) -> Any:
        if (node, do) == ("broker-1", "copy_disk"):
            raise AgentError("copy_disk on broker-1: OSError: no")
        return await asking(node, do, **arguments)

    monkeypatch.setattr(cluster._agent, "ask", refuse)
    problems = runner.run(cluster.collect(tmp_path))  # type: ignore[arg-type]
    assert set(problems) == {"broker-1"} and "could not be copied" in problems["broker-1"]
    assert (tmp_path / "disks/broker-2/collect-0/0.log").exists()


def test_a_node_cannot_write_anything_of_the_host_without_end(cluster: DockerCluster) -> None:
    node = cluster.brokers[0]
    said = in_node(
        node,
        "import os, resource\n"
        "for path in ('/x', '/opt/x', '/var/tmp/x'):\n"
        "    try:\n        open(path, 'w')\n        print('wrote', path)\n    except OSError:\n        pass\n"
        "print(resource.getrlimit(resource.RLIMIT_FSIZE))\n",
    )  # fmt: skip
    assert "wrote" not in said and str(2 << 30)[:2] in said and "-1" not in said
    seen = engine.connect().inspect_container(node.process)["HostConfig"]
    assert seen["PidsLimit"] == 1024 and seen["LogConfig"]["Config"] == {"max-size": "64m", "max-file": "3"}


def test_what_nodes_say_and_store_is_no_other_users(cluster: DockerCluster, runner: asyncio.Runner) -> None:
    run = engine.VOLUMES / cluster._plan.run
    assert stat.S_IMODE(run.stat().st_mode) == 0o710
    assert {stat.S_IMODE(image.stat().st_mode) for image in run.glob("*.img")} == {0o600}
    assert {stat.S_IMODE((run / node.name).stat().st_mode) for node in cluster.nodes} == {0o700}
    mounts = [line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines() if str(run) in line]
    options = [set(fields[5].split(",")) for fields in mounts if fields[4] == str(run / "broker-1")]
    assert options and all({"nosuid", "nodev", "noexec"} <= found for found in options)
    traces = cluster.nodes[0].configuration.parent.parent / "trace"
    assert stat.S_IMODE(traces.stat().st_mode) == 0o700
    for trace in traces.iterdir():
        assert not trace.stat().st_mode & 0o007 and trace.stat().st_uid == os.getuid()
    in_node(cluster.brokers[1], "open('/trace.jsonl', 'a').write('{}\\n')")
    assert (traces / "broker-2.jsonl").read_text().endswith("{}\n")


def test_the_agent_can_do_what_it_needs_and_no_more(cluster: DockerCluster) -> None:
    api = engine.connect()
    filters = {"label": [f"{engine.RUN_LABEL}={cluster._plan.run}", f"{engine.KIND_LABEL}=agent"]}
    (agent,) = api.containers(filters=filters)
    seen = api.inspect_container(agent["Id"])
    assert not seen["HostConfig"]["Privileged"]
    status = dict(
        line.split(":\t", 1)
        for line in Path(f"/proc/{seen['State']['Pid']}/status").read_text().splitlines()
        if ":\t" in line
    )
    assert status["Seccomp"] == "2" and status["NoNewPrivs"] == "1"
    assert int(status["CapEff"], 16).bit_count() == len(CAPABILITIES)
    assert int(status["CapBnd"], 16).bit_count() == len(CAPABILITIES)
    tried = api.exec_create(agent["Id"], ["python3", "-c", _TRIES])["Id"]
    said = api.exec_start(tried).decode()
    assert said.split() == ["refused"] * 9, said
    assert {"bpf", "ptrace", "mknodat", "io_uring_setup"} <= set(seccomp.profile()["syscalls"][0]["names"])


#: unshare, a namespace of users by clone, one of pids by setns, bpf, ptrace, symlink, mknod, keyctl, open_tree.
_TRIES = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
def tried(call):
    ctypes.set_errno(0)
    result = call()
    print("refused" if result == -1 and ctypes.get_errno() == 1 else f"{result} {ctypes.get_errno()}")
clone, bpf, keyctl = (56, 321, 250) if os.uname().machine == "x86_64" else (220, 280, 219)
pid = os.open("/proc/self/ns/pid", os.O_RDONLY)
tried(lambda: libc.unshare(0x00020000))
tried(lambda: libc.syscall(clone, 0x10000000 | 17, 0, 0, 0, 0))
tried(lambda: libc.setns(pid, 0))
tried(lambda: libc.syscall(bpf, 0, 0, 0))
tried(lambda: libc.ptrace(16, 1, 0, 0))
tried(lambda: libc.symlink(b"a", b"/dev/shm/b"))
tried(lambda: libc.mknod(b"/dev/shm/c", 0o010600, 0))
tried(lambda: libc.syscall(keyctl, 0, 0, 0))
tried(lambda: libc.syscall(428, -100, b"/", 1))
"""


def test_a_run_with_a_hostile_node_ends_and_its_verdict_names_what_is_missing(tmp_path: Path, host: Path) -> None:
    command = [sys.executable, "-m", "harness", "run", "--on", "docker", "--nemesis", "pause", "--time-limit", "8"]
    run = subprocess.Popen(
        [*command, "--seed", "5", "--results", str(tmp_path)],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    api = engine.connect()
    try:
        process = node_of(api, tmp_path, "broker-2")
        script = HOSTILE.replace("SECRET", str(host / "secret")).replace("FOLDER", str(host))
        asked = api.exec_create(process, ["python3", "-c", script])["Id"]
        assert "made a device" not in api.exec_start(asked).decode()
        said, _ = run.communicate(timeout=200)
    finally:
        if run.poll() is None:
            run.terminate()
            run.wait(60)
    (directory,) = tmp_path.glob("*-s5")
    try:
        verdict = json.loads((directory / "verdict.json").read_text())
        assert (run.returncode, verdict["verdict"]) == (2, "unknown"), said
        (gap,) = [gap for gap in verdict["evidence_missing"] if gap.startswith("the disk of broker-2")]
        assert "was not copied whole" in gap and "symbolic link" in gap and gap in said
        assert verdict["operations"]["acknowledged"] > 0
        problems = json.loads((directory / "run.json").read_text())["problems"]
        assert any("symbolic link" in problem for problem in problems)
        assert_nothing_of_the_host_is_in(directory / "disks")
        assert (directory / "disks" / "broker-1").is_dir() and (directory / "disks" / "broker-3").is_dir()
        assert removed_soon(directory.name)
    finally:
        cleanup.remove_run(api, directory.name)


def node_of(api: Any, results: Path, name: str) -> str:
    """The container of a node of the only run under `results`, once clients work on the cluster."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        for record in results.glob("*/run.json"):
            if '"workload_start_ns"' in record.read_text():
                wanted = f"chaos-{record.parent.name}-{name}"
                (found,) = (each for each in api.containers() if f"/{wanted}" in each["Names"])
                return str(found["Id"])
        time.sleep(0.1)
    raise AssertionError("the workload did not begin")
