"""What the agent knows of a service that was there, on processes of this machine; what follows from hosts.toml."""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.errors import BadArguments, RuntimeUnavailable
from harness.plan import registry
from harness.run.order import Order
from harness.run.there import agreed
from harness.runtimes.agent import kernel, proc
from harness.runtimes.agent.host.server import verbs_of
from harness.runtimes.agent.host.service import process as service_process
from harness.runtimes.agent.host.service import undo as service
from harness.runtimes.agent.host.service.machine import ServiceMachine
from harness.runtimes.agent.host.service.process import Service, ServiceProcess
from harness.runtimes.ssh import hosts_file
from harness.runtimes.ssh.service.layout import assign, layout
from tests.clusters.local_cluster import free_ports

#: A service: it listens, and has a file of its data open. Arguments: its data directory, its port, a pid file or "".
#: Whoever was ever started is in a list, by pid. One that is asked to end says so in a file.
PROGRAM = """
import os, signal, socket, sys, time
folder, port, pid_file = sys.argv[1], int(sys.argv[2]), sys.argv[3]
def say_goodbye(*_):
    open(os.path.join(folder, "..", "said goodbye"), "w").close()
    sys.exit()
signal.signal(signal.SIGTERM, say_goodbye)
if pid_file:
    open(pid_file, "w").write(f"{os.getpid()}\\n")
with open(os.path.join(folder, "..", "pids"), "a") as pids:
    pids.write(f"{os.getpid()}\\n")
time.sleep(0.3)
held = open(os.path.join(folder, ".lock"), "w")
with socket.create_server(("127.0.0.1", port)) as server:
    time.sleep(600)
"""
#: systemd, as far as it is asked: its unit's process is what a file names. It wakes whom it asks to end, as the real
#: one does. A unit that is started again at once is so just before it is stopped. Arguments: as of systemctl.
SYSTEMCTL = """#!/bin/sh
echo "$*" >>{folder}/asked
runs() {{ kill -0 $(cat {folder}/main) 2>/dev/null; }}
case "$1 $2 $3" in
"show --property MainPID") if runs; then cat {folder}/main; else echo 0; fi; exit ;;
"show --property ActiveState") if runs; then echo active; else echo inactive; fi; exit ;;
"show --property "*) exit ;;
esac
case "$1 $2" in
"start --no-block")
    if [ -e {folder}/failed ]; then exit 1; fi
    setsid {start} & echo $! >{folder}/main ;;
"reset-failed kafka.service") rm {folder}/failed ;;
"stop --no-block")
    if [ -e {folder}/restarts ] && ! runs; then setsid {start} & echo $! >{folder}/main; sleep 0.1; fi
    kill $(cat {folder}/main); kill -CONT $(cat {folder}/main) ;;
esac
"""


class Place:
    """A service of the test's own: its folders, port and commands."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.data, self.run = folder / "data", folder / "run"
        self.data.mkdir()
        self.run.mkdir()
        (self.port,) = free_ports(1)
        self.program = folder / "program.py"
        self.program.write_text(PROGRAM)
        self.pid_file = folder / "pid"

    def words(self, pid_file: str = "") -> list[str]:
        return [sys.executable, str(self.program), str(self.data), str(self.port), pid_file]

    def service(self, pid_file: str = "", **others: Any) -> Service:
        command = " ".join(f"'{word}'" for word in self.words(pid_file))
        start = ["sh", "-c", f"setsid {command} &"]
        stop = ["sh", "-c", f"kill $(tail -n 1 {self.folder / 'pids'})"]
        given = {"start": start, "stop": stop, "pid_file": pid_file, **others}
        return Service(str(self.data), self.port, "chaos-r", **given)

    def process(self, of: Service) -> ServiceProcess:
        """Once it is there."""
        of.begin("")
        wait_for(lambda: proc.listener(self.port) > 0)
        made = ServiceProcess(of, self.run)
        made.look()
        of.check(made.pid)
        made.note()
        return made


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    for pid in map(int, (tmp_path / "pids").read_text().split() if (tmp_path / "pids").exists() else ()):
        if str(made.program) in proc.command_line(pid):
            os.kill(pid, signal.SIGKILL)


def wait_for(holds: Callable[[], bool], seconds: float = 10.0) -> None:
    until = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.01)


@pytest.mark.parametrize("with_pid_file", [False, True])
def test_a_process_is_found_killed_started_and_stopped_by_commands(place: Place, with_pid_file: bool) -> None:
    of = place.service(str(place.pid_file) if with_pid_file else "")
    process = place.process(of)
    first = process.pid
    assert first == proc.listener(place.port) == proc.holder(place.data / ".lock")
    assert process.running()
    assert process.kill() > 0
    assert (process.ended(1), process.running(), service.amiss(place.run)) == (137, False, ["the service does not run"])
    second = process.start()
    assert second not in (0, first)  # found before it listens
    assert process.start() == second
    assert service.amiss(place.run) == []
    assert process.terminate(10) is True
    assert (process.ended(1), process.terminate(1), process.kill()) == (0, None, 0)


def test_who_does_not_listen_or_works_on_other_data_is_refused(place: Place, tmp_path: Path) -> None:
    of = place.service()
    with pytest.raises(OSError, match=f"the service does not run: who listens at port {place.port} is not there"):
        of.check(of.process())
    process = place.process(of)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    with pytest.raises(OSError, match=f"has no file of {elsewhere} open"):
        Service(str(elsewhere), place.port, "t", start=["x"], stop=["x"]).check(process.pid)
    with pytest.raises(OSError, match="is no directory of this host"):
        Service(str(tmp_path / "no"), place.port, "t", start=["x"], stop=["x"]).check(process.pid)
    place.pid_file.write_text(f"{os.getpid()}\n")
    other = place.service(str(place.pid_file))
    with pytest.raises(OSError, match=f"but who listens at port {place.port} is process {process.pid}"):
        other.check(other.process())
    place.pid_file.write_text("nobody\n")
    assert other.process() == process.pid


def test_a_start_command_that_fails_or_starts_nothing_is_told(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OSError, match="sh -c exit 3 ended with exit status 3"):
        place.service(start=["sh", "-c", "exit 3"]).begin("")
    monkeypatch.setattr(service_process, "THERE_S", 0.3)
    with pytest.raises(OSError, match=r"is not there 0\.3 s after true"):
        place.service(start=["true"]).begin("")


def test_what_is_started_has_nothing_of_the_agent(place: Place, tmp_path: Path) -> None:
    told = tmp_path / "told"
    script = f"(umask; ls -l /proc/$$/fd; env; grep SigIgn /proc/$$/status) >{told}"
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGHUP, signal.SIGQUIT)}
    try:
        assert place.service(stop=["sh", "-c", script]).end(5) == 0
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    text = told.read_text()
    assert text.startswith("0022\n")
    assert text.count("/dev/null") == 3  # the script's own output is a file
    assert "socket:" not in text
    assert "PYTHON" not in text
    ignored = {number for number in range(1, 65) if int(text.rpartition("SigIgn:")[2], 16) >> (number - 1) & 1}
    assert not ignored & signal.valid_signals()  # libc keeps the others for itself


@pytest.fixture
def unit(place: Place, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Service:
    """Of a systemd that is a script."""
    programs = tmp_path / "programs"
    programs.mkdir()
    fake = programs / "systemctl"
    fake.write_text(SYSTEMCTL.format(folder=tmp_path, start=shlex.join(place.words())))
    fake.chmod(0o755)
    journal = programs / "journalctl"
    journal.write_text("#!/bin/sh\necho of \"$*\"\n")
    journal.chmod(0o755)
    (tmp_path / "main").write_text("0\n")
    monkeypatch.setitem(service_process._ENVIRONMENT, "PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    return place.service(unit="kafka.service", start=(), stop=())


def test_a_unit_is_asked_of_systemctl_as_text(place: Place, unit: Service, tmp_path: Path) -> None:
    assert unit.process() == 0
    process = place.process(unit)
    assert process.pid == proc.listener(place.port)
    process.kill()
    (tmp_path / "failed").touch()  # as of a unit that ended too often
    process.start()
    assert process.terminate(10) is True
    assert process.last_words().startswith("of --unit kafka.service --lines")
    assert asked_of_systemctl(tmp_path) == [
        "start --no-block kafka.service", "start --no-block kafka.service", "reset-failed kafka.service",
        "start --no-block kafka.service", "stop --no-block kafka.service",
    ]  # fmt: skip
    assert "show --property MainPID --value kafka.service" in (tmp_path / "asked").read_text()


@pytest.mark.parametrize("restarts", [False, True])
def test_a_unit_that_loses_its_power_is_killed_and_then_stopped_and_whoever_was_started_in_between_is_killed_too(
    place: Place, unit: Service, tmp_path: Path, restarts: bool
) -> None:
    """Else systemd (Restart=) would start it while its file system is away; and what SIGTERM lets it write and sync
    would be no power cut."""
    process = place.process(unit)
    first = process.pid
    if restarts:
        (tmp_path / "restarts").touch()
    assert process.kill_for_good() > 0
    assert not process.running()
    assert [pid for pid in (first, int((tmp_path / "main").read_text())) if proc.is_alive(pid)] == []
    (tmp_path / "restarts").unlink(missing_ok=True)
    assert asked_of_systemctl(tmp_path) == ["start --no-block kafka.service", "stop --no-block kafka.service"]
    assert restarts or not (tmp_path / "said goodbye").exists()
    assert service.amiss(place.run) == ["the service does not run"]
    process.start()
    wait_for(lambda: proc.listener(place.port) > 0)
    assert process.terminate(10) is True
    assert (tmp_path / "said goodbye").exists()  # so it would have


def asked_of_systemctl(folder: Path) -> list[str]:
    """But for questions."""
    return [line for line in (folder / "asked").read_text().splitlines() if not line.startswith("show")]


def test_whoever_undoes_a_run_finds_what_was_done_and_nothing_else_is_touched(place: Place) -> None:
    process = place.process(place.service())
    first = process.pid
    service.go_on(place.run)
    service.put_right(place.run)
    assert process.pid == first
    process.signal(signal.SIGSTOP)
    wait_for(lambda: process.stopped)
    assert service.amiss(place.run) == [f"the service (pid {first}) is stopped"]
    service.go_on(place.run)
    wait_for(lambda: not process.stopped)
    process.kill()
    service.put_right(place.run)  # as by `agent.host remove`, when agent and guard were killed
    assert service.amiss(place.run) == []
    assert process.running()
    assert process.pid != first
    # Its owner has stopped it meanwhile: that is not the run's doing.
    os.kill(process.pid, signal.SIGKILL)
    wait_for(lambda: not process.running())
    service.put_right(place.run)
    assert not process.running()


def test_who_waits_for_a_stopped_process_and_stops_with_it_goes_on_with_it(place: Place) -> None:
    """As su and runuser do."""
    waits = "import os, signal, subprocess, sys; c = subprocess.Popen(sys.argv[1:])\n"
    waits += "os.waitpid(c.pid, os.WUNTRACED); os.kill(os.getpid(), signal.SIGSTOP); c.wait()"
    waiting = subprocess.Popen([sys.executable, "-c", waits, *place.words()])
    wait_for(lambda: proc.listener(place.port) > 0)
    process = ServiceProcess(place.service(), place.run)
    process.look()
    process.note()
    process.signal(signal.SIGSTOP)
    wait_for(lambda: kernel.is_stopped(waiting.pid))
    assert process.stopped
    process.signal(signal.SIGCONT)
    wait_for(lambda: not process.stopped)
    process.kill()
    assert waiting.wait(5) == 0


def test_what_was_brought_goes_and_its_folder_if_nothing_else_is_in_it(tmp_path: Path) -> None:
    brought = tmp_path / "opt" / "agent-1"
    brought.mkdir(parents=True)
    process = ServiceProcess(Service("/d", 1, "t", start=["x"], stop=["x"]), tmp_path, str(brought))
    process.note()
    (tmp_path / "opt" / "other").touch()
    service.remove_what_was_brought(tmp_path)
    assert [each.name for each in (tmp_path / "opt").iterdir()] == ["other"]
    assert json.loads((tmp_path / "service.json").read_text())["how"] == "running"


def test_nothing_else_can_be_asked_of_its_agent() -> None:
    possible = verbs_of(ServiceMachine)
    assert {"kill", "terminate", "boot", "frozen", "resumed", "block", "shape", "copy_disk"} <= possible.keys()
    assert not possible.keys() & {"slow_disk", "make_disk_read_only", "set_clock", "configure", "put_disk_aside"}
    assert possible["kill"].call is ServiceMachine.kill


def hosts_of(folder: Path, roles: list[str], more: str = "controller_port = 9093\n") -> hosts_file.Hosts:
    text = "".join(f'[hosts.h{n}]\naddress = "10.0.0.{n}"\nroles = {each}\n' for n, each in enumerate(roles, start=1))
    path = folder / "hosts.toml"
    path.write_text(f'{text}[service]\nunit = "kafka"\ndata_directory = "/srv/kafka"\n{more}')
    return hosts_file.read(path)


BOTH, BROKER, CONTROLLER = '["broker", "controller"]', '["broker"]', '["controller"]'


@pytest.mark.parametrize(
    ("roles", "fields", "names"),
    [
        ([BOTH] * 3, (3, 3, True), {"broker-1": "h1", "broker-2": "h2", "broker-3": "h3"}),
        ([BROKER, BOTH, BROKER], (3, 1, True), {"broker-1": "h2", "broker-2": "h1", "broker-3": "h3"}),
        ([CONTROLLER, BROKER, BROKER], (2, 1, False), {"broker-1": "h2", "broker-2": "h3", "controller-1": "h1"}),
    ],
)
def test_the_cluster_is_that_of_the_file(
    tmp_path: Path, roles: list[str], fields: tuple[int, int, bool], names: dict[str, str]
) -> None:
    hosts = hosts_of(tmp_path, roles)
    target = registry.make_target("kafka:4.2.0")
    found = agreed({"hosts": str(hosts.path)}, target)
    assert tuple(found[name] for name in ("brokers", "controllers", "combined")) == fields
    assert (found["service"], found["timeouts"]) == (True, "kafka")
    assert found["replication_factor"] == min(3, fields[0])
    plan = SimpleNamespace(**found, spare_brokers=0, racks=None)
    assert {name: host.name for name, host in assign(target.nodes(plan), hosts).items()} == names  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("roles", "more", "said"),
    [
        ([BOTH] * 3, "", "has no controller_port"),
        ([BOTH, CONTROLLER], "controller_port = 9093\n", "h2 is a controller alone, while h1 is a broker and a contr"),
        ([BROKER] * 3, "controller_port = 9093\n", "no host that is a controller"),
    ],
)
def test_a_file_that_tells_of_no_cluster_is_refused(tmp_path: Path, roles: list[str], more: str, said: str) -> None:
    with pytest.raises(BadArguments, match=said):
        layout(hosts_of(tmp_path, roles, more))


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"brokers": 5}, "--brokers contradicts .*whose cluster has 3 brokers; leave it out"),
        ({"combined": False}, "--combined contradicts"),
        ({"spare_brokers": 1}, "--spare-brokers are started by the harness"),
        ({"settings": {"a": "b"}}, "--set is for nodes that the harness configures"),
        ({"features": {"metadata.version": "4.0-IV3"}}, "--feature is for a cluster that the harness formats"),
        ({"file_system": "xfs"}, "--file-system is for volumes that the harness makes"),
        ({"bug": "x"}, "--bug is for nodes that the harness starts"),
        ({"target": "kraft"}, "target kraft cannot be one: give --target kafka:VERSION"),
        ({"nemesis": ("power-outage",)}, "nemesis power-outage is not possible .* destroys or damages data that is "
         r"somebody's \(cut_power\); if that is meant, say may_destroy_data = true of host h1 in .*hosts.toml"),
        ({"nemesis": ("disk:corrupt",)}, r"\(damage_file\); if that is meant, say may_destroy_data = true of host h"),
        ({"nemesis": ("disk:read-only",)}, "nemesis disk:read-only is not possible .* ext4 would keep the mark"),
        ({"nemesis": ("kill", "disk:slow")}, "nemesis disk:slow is not possible .* cgroups"),
        ({"nemesis": ("clock",)}, "nemesis clock is not possible .* clock of their own"),
        ({"nemesis": ("membership:reassign",)}, "it would change what is others'"),
        ({"nemesis": ("all",), "time_limit": 300.0}, r"nemesis all \(its part .*\) is not possible"),
    ],
    ids=lambda value: "" if isinstance(value, str) else ",".join(map(str, value.values())),
)
def test_what_makes_no_sense_there_is_one_sentence(tmp_path: Path, fields: dict[str, Any], said: str) -> None:
    hosts = hosts_of(tmp_path, [BOTH] * 3)
    asked = {"target": "kafka:4.2.0", "nemesis": ("kill",), "hosts": str(hosts.path), "seed": 1, **fields}
    with pytest.raises((BadArguments, RuntimeUnavailable), match=said):
        Order(asked, tmp_path, starts=False).prepared()


def test_what_can_be_done_to_somebodys_cluster_can_be_asked(tmp_path: Path) -> None:
    hosts = hosts_of(tmp_path, [BOTH] * 3)
    names = ("kill", "kill:term", "pause", "partition", "network", "requests:delay", "rolling-restart")
    asked = {"target": "kafka:4.2.0", "nemesis": names, "hosts": str(hosts.path), "seed": 1, "time_limit": 120.0}
    plan = Order(asked, tmp_path, starts=False).prepared().tried
    assert (plan.on, plan.service, plan.node_names) == ("ssh", True, ["broker-1", "broker-2", "broker-3"])
    assert f"--hosts {hosts.path}" in plan.command()
    without = {name: value for name, value in asked.items() if name != "hosts"}
    with pytest.raises(BadArguments, match="the plan is of a cluster that is already there"):
        Order({**without, "service": True, "on": "docker"}, tmp_path, starts=False).prepared()


def test_sockets_of_others_are_not_ours() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert proc.listener(server.getsockname()[1]) == os.getpid()
    assert proc.listener(free_ports(1)[0]) == 0
