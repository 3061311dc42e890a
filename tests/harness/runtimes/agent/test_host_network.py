"""What the agent does to the network of a host: in a network namespace of a process' own."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from .namespaces import apart, configuration

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="mounts and queues are root's")

#: Interfaces: `ours` leads to the other nodes.
LINKS = """
from harness.runtimes.agent.host.network import HostEnds, HostNetwork, HostQueues
from harness.runtimes.agent.network.queues import Queue
def ip(*words):
    return tools.run(["ip", *words])
def tc(*words):
    return tools.run(["tc", *words])
for name, address in (("ours", "10.0.0.1/24"), ("theirs", "10.0.1.1/24"), ("bare", "10.0.2.1/24")):
    ip("link", "add", name, "type", "veth", "peer", "name", f"{name}-far")
    ip("address", "add", address, "dev", name)
    ip("link", "set", name, "up")
ends = HostEnds(["10.0.0.1", "10.0.0.2"], [9092], [22, 2222])
network = HostNetwork(ends)
queues = HostQueues(network.namespace, ends, "10.0.0.1")
tree = {"saddr 0.0.0.0": Queue(rate_kbit=100.0), "daddr 10.0.0.2": Queue(rate_kbit=100.0)}
def ingress():
    return sorted(each["dev"] for each in json.loads(tc("-j", "qdisc", "show")) if each["kind"] == "ingress")
"""


def test_queues_of_other_interfaces_are_left_alone() -> None:
    told = apart(LINKS + """
tc("qdisc", "add", "dev", "theirs", "ingress")
tc("filter", "add", "dev", "theirs", "parent", "ffff:", "protocol", "ip", "u32", "match", "ip", "dst", "10.0.1.1",
   "action", "mirred", "egress", "redirect", "dev", "bare")
tc("qdisc", "add", "dev", "bare", "ingress")
queues.build(tree)
seen = [ingress()]
queues.build({**tree, "daddr 10.0.0.2": Queue(rate_kbit=50.0)})
seen.append(ingress())
seen.append(undo.undo(Path("/run/nothing")))
seen.append(ingress())
left = tc("filter", "show", "dev", "theirs", "parent", "ffff:")
print(json.dumps([*seen, "to device bare)" in left, queues.there_are()]))
""")
    theirs = ["bare", "theirs"]
    both = sorted([*theirs, "ours"])
    assert json.loads(told) == [both, both, ["queues: that shape the network"], theirs, True, False]


def test_an_interface_that_has_queues_of_its_owner_is_refused() -> None:
    told = apart(LINKS + """
tc("qdisc", "add", "dev", "ours", "ingress")
try:
    queues.build(tree)
except OSError as error:
    print(error)
print(ingress(), queues.there_are())
""")
    assert told.splitlines() == [
        "ours has queues of its own (ingress ffff:), which this would replace", "['ours'] False",
    ]  # fmt: skip


def test_netem_is_tried_where_nobody_sees_it(tmp_path: Path) -> None:
    fake = tmp_path / "tc"
    fake.write_text("#!/bin/sh\nreadlink /proc/self/ns/net >>$0.asked\n")
    fake.chmod(0o755)
    told = apart("""
from harness.runtimes.agent.host.machine import HostMachine
own = os.readlink("/proc/self/ns/net")
os.environ["PATH"] = f"{sys.argv[1]}:{os.environ['PATH']}"
print(HostMachine.lacks(object.__new__(HostMachine), ["netem"]))
print(own in Path(sys.argv[1], "tc.asked").read_text().split())
""", tmp_path)  # fmt: skip
    assert told.splitlines() == ["{}", "False"]


def test_links_that_are_cut_or_shaped_are_so_after_a_reboot(tmp_path: Path) -> None:
    """Two machines in the place of two agents: with the first goes all that the kernel had of it."""
    shape = {"delay_ms": 0.0, "jitter_ms": 0.0, "reorder": 0.0, "loss": 0.5, "duplicate": 0.0, "rate_kbit": 100.0}
    wanted = {"outgoing": ["10.0.0.2"], "incoming": ["10.0.0.2"], "outside": "0.0.0.0", "shape": shape}
    told = apart(LINKS + """
asked, wanted = json.loads(sys.argv[1]), json.loads(sys.argv[2])
folder = run_folder.make(Path(asked["data_directory"]), "r", resumes=False)
def machine(**others):
    made = guard._machine({**asked, **others}, folder)
    made.volume.directory.is_mount() and kernel.unmount(made.volume.directory)
    return made
def in_force():
    chains = {chain for chain in HostNetwork(ends)._chains() if not chain.startswith("unplugged")}
    return [sorted(chains), queues.there_are()]
first = machine()
first.plug_in(0)
first.block("cut-1", ["10.0.0.2"], [])
first.block("cut-2", [], ["10.0.0.2"])
first.shape("slow-1", wanted)
first.shape("slow-2", wanted)
first.unblock("cut-2")
first.unshape("slow-2")
seen = [in_force()]
queues.clear()
network.clear()
second = machine(resumes=True)
second.rebooted()
seen.append(in_force())
second.plug_in(0)
seen.append(in_force())
seen += [second.unblock("cut-1"), second.unshape("slow-1"), in_force()]
third = machine(resumes=True)
third.plug_in(0)
seen.append(in_force())
print(json.dumps(seen))
""", json.dumps(configuration(tmp_path, may_reboot=True)), json.dumps(wanted))  # fmt: skip
    before, off, on, dropped, counted, healed, third = json.loads(told)
    cut = ["cut-1-in", "cut-1-out", "slow-1-in", "slow-1-out"]
    assert (before, off, on) == ([cut, True], [[], False], [cut, True])
    assert (dropped, healed, third) == ({"saddr 10.0.0.2": 0}, [[], False], [[], False])
    assert counted.keys() == {"saddr 10.0.0.2", "daddr 10.0.0.2"}


#: The other node, in a namespace of its own: what it serves, and what it reaches here.
OTHER = """
import os, socket, sys, threading
from harness.runtimes.agent import kernel, tools
kernel.leave_network_namespace()
print(os.getpid(), flush=True)
sys.stdin.readline()
tools.keep_own_namespaces()
tools.run(["ip", "address", "add", "10.0.0.2/24", "dev", "ours-far"])
tools.run(["ip", "link", "set", "ours-far", "up"])
servers = [socket.create_server(("10.0.0.2", port)) for port in (22, 2222, 9092)]
print(flush=True)
while line := sys.stdin.readline():
    try:
        socket.create_connection(("10.0.0.1", int(line)), timeout=0.5).close()
        print("yes", flush=True)
    except OSError:
        print("no", flush=True)
"""
BOTH = """
import socket, subprocess, time
other = subprocess.Popen([sys.executable, "-c", OTHER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
ip("link", "set", "ours-far", "netns", other.stdout.readline().strip())
other.stdin.write("\\n")
other.stdin.flush()
other.stdout.readline()
servers = [socket.create_server(("10.0.0.1", port)) for port in (22, 9092)]

def reached():
    found = []
    for port in (22, 2222, 9092):
        try:
            socket.create_connection(("10.0.0.2", port), timeout=0.5).close()
            found.append(port)
        except OSError:
            pass
    seen = []
    for port in (22, 9092):
        other.stdin.write(f"{port}\\n")
        other.stdin.flush()
        if other.stdout.readline() == "yes\\n":
            seen.append(port)
    return [found, seen]

time.sleep(0.2)
told = [reached()]
network.block("cut", ["10.0.0.2"], ["10.0.0.2"])
told.append(reached())
network.block("cut", [], [])
network.unplug()
told.append(reached())
network.plug_in()
told.append(reached())
queues.build({"daddr 10.0.0.2": Queue(rate_kbit=100.0)})
filters = tc("filter", "show", "dev", "ours")
told.append([filters.count(f"{port:04x}0000/ffff0000") + filters.count(f"{port:08x}/0000ffff") for port in (22, 2222)])
other.kill()
print(json.dumps(told))
"""


def test_nothing_that_is_done_to_a_node_keeps_it_from_being_the_way_to_another() -> None:
    """Its host may be where ProxyJump leads, and sshd may serve another port there."""
    told = apart(LINKS + f"OTHER = {OTHER!r}" + BOTH)
    all_of_it, ssh_alone = [[22, 2222, 9092], [22, 9092]], [[22, 2222], [22]]
    assert json.loads(told) == [all_of_it, ssh_alone, ssh_alone, all_of_it, [2, 2]]
