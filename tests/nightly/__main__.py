"""python -m tests.nightly [PART …] [--seeds A..B]: without a part, all of them; exit code 1 if a line does not hold.

| part | what must hold |
| --- | --- |
| named-nemeses | the README's example and each composite, in containers and in simulation: each nemesis took |
|  | effect, or the verdict is `unknown` and says which did not |
| acks | acks=1 with --nemesis kill fails within three seeds, in containers; acks=all passes ten |
| hostile | containers that make a million names; results on 20 MB that run full |
| traffic | hostile traffic of every kind against brokers and controllers, each for six seconds |
| kafka | runs of Apache Kafka whose verdicts are known: ELR's scenario by release and feature, the main job |
| rules | each row of PROTOCOL.md: its tests fail without its rule |
| isr | under load, who keeps up is in the ISR within a second: 200 seeds |
| explore | 500 seeds of every nemesis in simulation: none fails |
| guided | 500 runs that learn of each other, of four families of faults: none fails |
| choreographies | 300 seeds of steps in an order, beside power outages and kills: none fails |
| determinism | 200 seeds, tasks in other orders, in two processes with two hash seeds: one trace hash each |
| sweep | a power cut in every operation on a disk while clients append, and while logs load: none fails |
| prove | each bug of record is found and proven, but for those that docs/simulation.md argues |
| mutants | the share of mutants that explorations find: a figure, and those that survive |
| resizing | a cluster that grows, and one that shrinks, under faults: five seeds of two minutes in containers, 500 in |
|  | simulation; Apache Kafka grows; rebalance cut short at ten moments |
| deletion | retention and DeleteRecords under power outages and kills: five seeds in containers |
| topics | that come and go beside the one that is tested: 300 seeds of every nemesis in simulation, 100 of target v2, |
|  | three on Apache Kafka: none fails |
| search | bench: 1,000 adversarial histories of each model within twice 1 s and 200 MB |
| models | 10,000 random histories of each model against brute force |
| histories | the tests against brute force, 100,000 histories each; the metadata quorum under 2,000 seeds of faults |
| zookeeper | the model answers as Apache ZooKeeper does: 10,000 random sequences of operations |
| clients | each client under power outages and kills, on `kraft` and on Apache Kafka: passes, 20,000 acknowledged; |
|  | every lie of every client is found |
| groups | consumer groups on Apache Kafka under kill, pause and partition, by both protocols: of five seeds each at |
|  | least four are decided; what fails is to be explained by hand |
| transactions | transactions on Apache Kafka under kill, pause and partition: none fails; a delayed EndTxn tears some |
|  | where transaction.version is below 2 (KAFKA-17754), and none where it is not |
| tests | those that are marked `nightly`, of which others show the same in less time |
| bench | all figures |
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from cluster_image.v2.bugs import MENDED

#: As the README shows it.
EXAMPLE: Final = ("--nemesis", "partition:one-way,power:leader", "--interval", "12s", "--recovery", "6s")
COMPOSITES: Final = ("last-replica-standing", "rolling-restart", "flapping-leader", "majority-down", "all")
TIME_LIMIT_S: Final = 60

Line = tuple[bool, str]  # does it hold, and what was seen


def named_nemeses(seeds: Sequence[int], results: Path) -> Iterator[Line]:
    for place in ("simulation", "docker"):
        for asked in (EXAMPLE, *(("--nemesis", name) for name in COMPOSITES)):
            for seed in seeds:
                code, verdict = _run(results, place, seed, TIME_LIMIT_S, *asked)
                idle = [each["nemesis"] for each in verdict.get("nemeses", ()) if each["why_not"]]
                said = code == 2 and all(name in str(verdict["reason"]) for name in idle)
                yield (
                    (code == 0 and not idle) or (bool(idle) and said),
                    (f"{place}, {asked[1]}, seed {seed}: {verdict.get('verdict')}, {verdict.get('reason')}"),
                )


def acks(seeds: Sequence[int], results: Path) -> Iterator[Line]:
    found = 0
    for seed in seeds[:3]:
        code, verdict = _run(results, "docker", seed, 45, "--acks", "1", "--nemesis", "kill")
        found += code == 1
        yield code in (0, 1), f"acks=1, seed {seed}: {verdict.get('verdict')}, {verdict.get('reason')}"
    yield found > 0, f"acks=1: {found} of 3 seeds fail"
    for seed in seeds:
        code, verdict = _run(results, "docker", seed, 45, "--acks", "all", "--nemesis", "kill")
        yield code == 0, f"acks=all, seed {seed}: {verdict.get('verdict')}, {verdict.get('reason')}"


def hostile(seeds: Sequence[int], results: Path) -> Iterator[Line]:
    folder = "tests/harness/runtimes/docker"
    tests = (f"{folder}/test_docker_hostile_node.py", f"{folder}/test_docker_full_results.py")
    code = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-m", "docker", *tests],
        env={**os.environ, "CHAOS_HOSTILE_NAMES": "1000000", "CHAOS_SMALL_RESULTS_MB": "20"}, check=False,
    ).returncode  # fmt: skip
    yield code == 0, f"hostile nodes and small volumes: exit code {code}"


def traffic(seeds: Sequence[int], results: Path) -> Iterator[Line]:
    yield _module("tests.hostile")


def rules(seeds: Sequence[int], results: Path) -> Iterator[Line]:
    yield _module("tests.protocol_table")


def isr(seeds: Sequence[int], results: Path) -> Iterator[Line]:
    code = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "2", "tests/cluster_image/kraft/broker/test_isr_under_load.py"],
        env={**os.environ, "ISR_SEEDS": "200"}, check=False,
    ).returncode  # fmt: skip
    yield code == 0, f"who keeps up under load, 200 seeds: exit code {code}"


def _module(name: str) -> Line:
    code = subprocess.run([sys.executable, "-m", name], check=False).returncode
    return code == 0, f"python -m {name}: exit code {code}; the table says what came of each"


def explore(seeds: Sequence[int], results: Path) -> Iterator[Line]:
    command = ["explore", "--seeds", "0..499", "--nemesis", "all", "--results", str(results)]
    code = subprocess.run([sys.executable, "-m", "harness", *command], check=False).returncode
    yield code == 0, f"chaos {' '.join(command[:5])}: exit code {code}"


def guided(seeds: Sequence[int], results: Path) -> Iterator[Line]:
    nemesis = "power-outage,kill,pause,partition"
    yield _chaos("explore", "--guided", "--seeds", "0..499", "--nemesis", nemesis, "--results", str(results))


def choreographies(seeds: Sequence[int], results: Path) -> Iterator[Line]:
    nemesis = "choreography,kill,power-outage"
    yield _chaos("explore", "--seeds", "0..299", "--nemesis", nemesis, "--results", str(results))


def determinism(seeds: Sequence[int], results: Path) -> Iterator[Line]:
    code = subprocess.run([sys.executable, "-m", "tests.clusters.determinism", "200"], check=False).returncode
    yield code == 0, f"200 seeds, two hash seeds: exit code {code}"


def sweep(seeds: Sequence[int], results: Path) -> Iterator[Line]:
    for phase in ("produce", "load"):
        yield _chaos("explore", "--every", "power", "--of", phase, "--seeds", "1", "--results", str(results))


#: What no run is expected to find, see docs/simulation.md.
ARGUED: Final = frozenset({"M30", "M53"})


def prove(seeds: Sequence[int], results: Path) -> Iterator[Line]:
    done = subprocess.run([sys.executable, "-m", "harness", "prove", "--json", "--results", str(results)],
                          stdout=subprocess.PIPE, check=False)  # fmt: skip
    for bug in json.loads(done.stdout)["bugs"]:
        runs = ", ".join(str(search["runs"]) if search["found"] else "not found" for search in bug["searches"])
        yield bug["holds"] or bug["id"] in ARGUED, f"{bug['id']}: {runs} {bug['problem']}"


def mutants(seeds: Sequence[int], results: Path) -> Iterator[Line]:
    code = subprocess.run([sys.executable, "-m", "harness", "prove", "--mutants", "--results", str(results)],
                          check=False).returncode  # fmt: skip
    yield code in (0, 2), f"mutants: exit code {code}"


def _chaos(*command: str) -> Line:
    code = subprocess.run([sys.executable, "-m", "harness", *command], check=False).returncode
    return code == 0, f"chaos {' '.join(command[:-2])}: exit code {code}"


GROW: Final = (
    *("--brokers", "3", "--spare-brokers", "2", "--partitions", "40"),
    *("--nemesis", "membership:add,power-outage,kill"),
)
SHRINK: Final = (
    *("--brokers", "5", "--partitions", "40"), *("--nemesis", "membership:remove,partition,pause"),
)  # fmt: skip
ON_KAFKA: Final = (
    *("--target", "kafka:4.2.0", "--brokers", "3", "--spare-brokers", "1"), *("--nemesis", "membership:add,kill"),
)  # fmt: skip
SHORT_LIVED: Final = ("--short-lived-topics", "1s")
DELETING: Final = (
    *("--nemesis", "power-outage,kill", "--delete-records", "3s"),
    *("--set", "log.retention.ms=10000", "--set", "log.segment.bytes=65536"),
)


def resizing(seeds: Sequence[int], results: Path) -> Iterator[Line]:
    for shape in (GROW, SHRINK):
        for seed in seeds[:5]:
            code, verdict = _run(results, "docker", seed, 120, *shape)
            yield code == 0, f"{' '.join(shape)}, seed {seed}: {verdict.get('verdict')}, {verdict.get('reason')}"
    for shape in (GROW, SHRINK):
        command = ["explore", "--seeds", "0..499", "--time-limit", "60s", *shape, "--results", str(results)]
        code = subprocess.run([sys.executable, "-m", "harness", *command], check=False).returncode
        yield code == 0, f"chaos {' '.join(command[:-2])}: exit code {code}"
    code, verdict = _run(results, "docker", 1, 90, *ON_KAFKA)
    yield code == 0, f"{' '.join(ON_KAFKA)}: {verdict.get('verdict')}, {verdict.get('reason')}"
    code = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "tests/cluster_image/tools", "-k", "cut_short"],
        env={**os.environ, "CHAOS_CUTS": "10"}, check=False,
    ).returncode  # fmt: skip
    yield code == 0, f"rebalance cut short at ten moments: exit code {code}"


def deletion(seeds: Sequence[int], results: Path) -> Iterator[Line]:
    for seed in seeds[:5]:
        code, verdict = _run(results, "docker", seed, 60, *DELETING)
        yield code == 0, f"{' '.join(DELETING)}, seed {seed}: {verdict.get('verdict')}, {verdict.get('reason')}"


def topics(seeds: Sequence[int], results: Path) -> Iterator[Line]:
    explore = ("explore", "--time-limit", "30", "--brokers", "4", "--results", str(results), *SHORT_LIVED)
    yield _chaos(*explore, "--seeds", "0..299", "--nemesis", "all")
    mended = [f"--set={name}=true" for name in MENDED]
    yield _chaos(*explore, "--seeds", "0..99", "--target", "v2", "--nemesis", "kill,membership:reassign", *mended)
    for seed in seeds[:3]:
        shape = ("--target", "kafka:4.2.0", "--nemesis", "power-outage,kill", *SHORT_LIVED)
        code, verdict = _run(results, "docker", seed, 60, *shape)
        yield code == 0, f"{' '.join(shape)}, seed {seed}: {verdict.get('verdict')}, {verdict.get('reason')}"


def search(seeds: Sequence[int], results: Path) -> Iterator[Line]:
    yield _bench("search")


def marked(seeds: Sequence[int], results: Path) -> Iterator[Line]:
    command = ["pytest", "-q", "--numprocesses", "3", "--dist", "loadfile", "--no-loadscope-reorder", "-m", "nightly"]
    code = subprocess.run([sys.executable, "-m", *command], check=False).returncode
    yield code == 0, f"tests that are marked `nightly`: exit code {code}"


def bench(seeds: Sequence[int], results: Path) -> Iterator[Line]:
    yield _bench()


def histories(seeds: Sequence[int], results: Path) -> Iterator[Line]:
    asked = "brute or agrees or random or promises"
    code = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "2", "-m", "not docker", "-k", asked],
        env={**os.environ, "CHAOS_HISTORIES": "100000", "RAFT_SEEDS": "2000"}, check=False,
    ).returncode  # fmt: skip
    yield code == 0, f"100,000 histories of each property: exit code {code}"


def models(seeds: Sequence[int], results: Path) -> Iterator[Line]:
    folders = [f"tests/checkers/{name}" for name in ("models", "registers", "transactions")]
    code = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--timeout", "7200", "-k", "brute or promises", *folders],
        env={**os.environ, "CHAOS_HISTORIES": "10000"}, check=False,
    ).returncode  # fmt: skip
    yield code == 0, f"10,000 histories of each model against brute force: exit code {code}"


def zookeeper(seeds: Sequence[int], results: Path) -> Iterator[Line]:
    code = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--timeout", "7200", "tests/cluster_image/v2/zookeeper/test_machine.py"],
        env={**os.environ, "CHAOS_SEQUENCES": "10000"}, check=False,
    ).returncode  # fmt: skip
    yield code == 0, f"10,000 sequences of operations on the model and on Apache ZooKeeper: exit code {code}"
    code = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--timeout", "900", "tests/cluster_image/v2/test_on_zookeeper.py"],
        env={**os.environ, "CHAOS_TOPICS": "1000"}, check=False,
    ).returncode  # fmt: skip
    yield code == 0, f"the watches of 1,000 topics of three partitions: exit code {code}"


def clients(seeds: Sequence[int], results: Path) -> Iterator[Line]:
    for client in ("kio", "librdkafka", "java", "kafka-python", "aiokafka"):
        for target in ("kraft", "kafka:4.2.0"):
            asked = ("--client", client, "--target", target, "--nemesis", "power-outage,kill")
            code, verdict = _run(results, "docker", seeds[0], 45, *asked)
            operations = verdict.get("operations")
            acknowledged = operations["acknowledged"] if isinstance(operations, Mapping) else 0
            yield (
                code == 0 and acknowledged >= 20_000,
                f"{client} on {target}: {verdict.get('verdict')}, {verdict.get('reason')}",
            )
    code = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "tests/workloads/clients/test_lies.py"],
        env={**os.environ, "CHAOS_LIES": "all"}, check=False,
    ).returncode  # fmt: skip
    yield code == 0, f"all lies of all clients: exit code {code}"


def groups(seeds: Sequence[int], results: Path) -> Iterator[Line]:
    for client, protocol in (("java", "classic"), ("java", "consumer"), ("librdkafka", "classic")):
        decided = 0
        asked = (
            *("--target", "kafka:4.2.0", "--client", client, "--workload", "consumer-group"),
            *("--workload-set", f"protocol={protocol}", "--nemesis", "kill,pause,partition"),
        )
        for seed in seeds[:5]:
            code, verdict = _run(results, "docker", seed, 120, *asked)
            decided += code in (0, 1)
            yield code != 1, f"{client}, {protocol}, seed {seed}: {verdict.get('verdict')}, {verdict.get('reason')}"
        yield decided >= 4, f"{client}, {protocol}: {decided} of 5 seeds decided"


def transactions(seeds: Sequence[int], results: Path) -> Iterator[Line]:
    for client in ("java", "librdkafka"):
        asked = ("--target", "kafka:4.2.0", "--client", client, "--workload", "transactions")
        for seed in seeds[:3]:
            code, verdict = _run(results, "docker", seed, 120, *asked, "--nemesis", "kill,pause,partition")
            yield code != 1, f"{client}, seed {seed}: {verdict.get('verdict')}, {verdict.get('reason')}"
    for version in ("3.9.1", "4.2.0"):
        torn = 0
        for seed in seeds[:2]:
            asked = ("--target", f"kafka:{version}", "--client", f"java:{version}", "--workload", "transactions")
            code, verdict = _run(results, "docker", seed, 240, *asked, "--nemesis", "requests:delay:api=EndTxn")
            torn += "torn transaction" in str(verdict.get("reason"))
            yield code in ((0, 1) if version == "3.9.1" else (0,)), f"{version}, seed {seed}: {verdict.get('reason')}"
        yield (torn > 0) == (version == "3.9.1"), f"{version}: {torn} of 2 runs with torn transactions"


def _bench(*parts: str) -> Line:
    code = subprocess.run([sys.executable, "-m", "harness.bench", *parts], check=False).returncode
    return code == 0, f"bench {' '.join(parts)}: exit code {code}; the table says which aims are met"


def _run(results: Path, place: str, seed: int, time_limit: int, *asked: str) -> tuple[int, Mapping[str, object]]:
    """Exit code and verdict of one run."""
    before = set(results.glob("*"))
    command = ["run", "--on", place, "--seed", str(seed), "--time-limit", f"{time_limit}s", "--results", str(results)]
    whole = [sys.executable, "-m", "harness", *command, *asked]
    done = subprocess.run(whole, capture_output=True, text=True, check=False)
    (directory,) = set(results.glob("*")) - before or {results}
    path = directory / "verdict.json"
    if not path.exists():
        return done.returncode, {"verdict": "none", "reason": done.stderr.strip().split("\n")[-1]}
    verdict: dict[str, object] = json.loads(path.read_text())
    return done.returncode, verdict


def kafka(seeds: Sequence[int], results: Path) -> Iterator[Line]:
    yield _module("tests.nightly.kafka")


PARTS: Final[Mapping[str, Callable[[Sequence[int], Path], Iterator[Line]]]] = {
    "named-nemeses": named_nemeses, "acks": acks, "hostile": hostile, "traffic": traffic, "kafka": kafka,
    "rules": rules, "isr": isr, "explore": explore, "guided": guided, "sweep": sweep, "prove": prove,
    "choreographies": choreographies, "determinism": determinism, "mutants": mutants, "resizing": resizing,
    "deletion": deletion, "topics": topics, "search": search, "models": models, "histories": histories,
    "tests": marked, "bench": bench, "zookeeper": zookeeper, "clients": clients, "groups": groups,
    "transactions": transactions,
}  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.nightly")
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--seeds", default="1..10", metavar="A..B")
    asked = parser.parse_args()
    if unknown := set(asked.parts) - set(PARTS):
        parser.error(f"there is no part {sorted(unknown)[0]!r}; there are {', '.join(PARTS)}")
    first, _, last = asked.seeds.partition("..")
    seeds = range(int(first), int(last or first) + 1)
    wrong = 0
    for name in asked.parts or PARTS:
        with tempfile.TemporaryDirectory(prefix="chaos-nightly-") as directory:
            for holds, seen in PARTS[name](seeds, Path(directory)):
                wrong += not holds
                print(f"{'holds' if holds else 'WRONG':5}  {name}: {seen}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
