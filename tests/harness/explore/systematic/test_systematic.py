"""Every operation that was counted is struck, once, and is the same one that was counted."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections import Counter
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from checkers.inside.violation import Violation
from cluster_image.storage import segment
from cluster_image.storage.checkpoints import PartitionMetadataFile
from harness.cli.simulated import systematic
from harness.cli.simulated.explore import read_options
from harness.cli.simulated.planning import planned
from harness.errors import BadArguments, ExitCode
from harness.explore.replaying.exactly import replay
from harness.explore.simulate import simulate
from harness.explore.systematic.points import Point, Sweep, deeper, evidence_of, points_of, thinned
from harness.explore.systematic.sweeping import Swept, before, carry_out
from harness.plan import registry
from harness.plan.plan import Plan
from harness.record import results
from harness.report.terminal import Terminal

PLAN = Plan(
    run="systematic", on="simulation", seed=3, rate=40.0, partitions=2, concurrency=2, time_limit=5.0,
    settings={"log.segment.bytes": "1024"},
)  # fmt: skip
KRAFT = registry.make_target("kraft")


def test_points_are_thinned_evenly() -> None:
    points = points_of({"a": 5, "b": 3}, None)
    assert [str(point) for point in points] == ["a 1", "a 2", "a 3", "a 4", "a 5", "b 1", "b 2", "b 3"]
    assert [str(point) for point in thinned(points, 3, None)] == ["a 1", "a 4", "b 2"]
    assert [str(point) for point in thinned(points, 1, 3)] == ["a 1", "a 3", "b 1"]
    assert thinned(points, 1, 8) == points and thinned(points, 9, 1) == points[:1]
    again = deeper([(Point("a", 2, 0), 2), (Point("a", 3, 0), 0), (Point("b", 1, 0), 1)])
    assert [str(point) for point in again] == ["a 2 and 1", "a 2 and 2", "b 1 and 1"]


@pytest.mark.parametrize(("every", "of"), [("fsync", "produce"), ("eio", "load"), ("power", "load")])
def test_a_node_is_struck_in_each_operation_that_was_counted_and_in_no_other(every: str, of: str) -> None:
    sweep = Sweep(PLAN, every, of)  # type: ignore[arg-type]
    counted = sweep.counted(KRAFT)
    assert list(counted) == [*(f"broker-{n}" for n in (1, 2, 3)), *(f"controller-{n}" for n in (1, 2, 3))]
    node = "controller-2" if of == "load" else "broker-2"
    assert counted[node] >= 5
    struck = []
    for number in range(1, counted[node] + 2):
        job = sweep.job(Point(node, number))
        seen = evidence_of(simulate(*job))[node]
        if number <= counted[node]:
            assert seen["struck"]["number"] == number
            struck.append((seen["lost_at"], seen["struck"]["operation"], seen["struck"]["path"]))
        else:
            assert "struck" not in seen and seen["counted_operations"] == counted[node]
    assert [at for at, *_ in struck] == sorted(at for at, *_ in struck), "the same run goes on to the next one"
    assert len({operation for _, operation, _ in struck}) > (1 if every != "fsync" else 0)


@pytest.mark.parametrize("every", ["reset", "late"])
def test_each_message_is_struck_once_and_is_the_one_that_was_counted(every: str) -> None:
    sweep = Sweep(PLAN, every, "produce")  # type: ignore[arg-type]
    counted = sweep.counted(KRAFT)
    assert counted["broker-1"] > 100 and all(counted.values())
    struck = []
    for node in ("broker-1", "broker-2"):
        times = []
        for number in (1, 30, 60, counted[node]):
            done = simulate(*sweep.job(Point(node, number)))
            assert not done.crash and done.violation is None
            seen = evidence_of(done)[node]
            assert seen["struck"]["number"] == number
            struck.append((seen["struck"]["operation"], seen["struck"]["path"]))
            times.append(seen["struck_at"])
        assert times == sorted(times)
    assert {operation for operation, _ in struck} == {"request", "answer"}
    assert all(name.endswith("Request" if operation == "request" else "Response") for operation, name in struck)


def test_the_count_is_the_same_whenever_it_is_taken() -> None:
    sweep = Sweep(PLAN, "power", "produce")
    first = sweep.counted(KRAFT)
    assert first == sweep.counted(KRAFT) and sum(first.values()) > 100


def failing(sweep: Sweep, points: list[Point]) -> Counter[str]:
    """What broke, by property."""
    found = Counter[str]()
    for point in points:
        done = simulate(*sweep.job(point))
        assert not done.crash
        if done.violation is not None:
            found[done.violation.property] += 1
    return found


def test_a_file_that_is_relied_on_before_it_is_synced_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    sweep = Sweep(PLAN, "power", "produce")
    points = [Point("broker-1", 1), Point("broker-1", 21)]
    assert not failing(sweep, points)

    def without_sync(self: PartitionMetadataFile, topic_id: UUID) -> None:
        encoded = urlsafe_b64encode(topic_id.bytes).decode().rstrip("=")
        file = self._disk.open(self._path)
        file.append(f"version: 0\ntopic_id: {encoded}\n".encode())
        file.close()

    monkeypatch.setattr(PartitionMetadataFile, "write", without_sync)
    assert sum(sweep.counted(KRAFT).values()) > 100, "nothing shows before the power goes"
    assert failing(sweep, points) == {"Liveness": 2}


def test_a_sync_that_is_believed_after_it_failed_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    sweep = Sweep(PLAN, "fsync", "load")
    points = [Point("broker-1", number) for number in (3, 4, 12)]  # of a directory, and of each of two newest segments
    assert not failing(sweep, points)
    monkeypatch.setattr(segment, "believe_the_disk", lambda file: None)
    assert failing(sweep, points) == {"FlushedOffset": 2}


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Swept:
    return carry_out(Sweep(PLAN, "kill", "load", 2), tmp_path_factory.mktemp("results"), most=4, workers=1)


def test_a_sweep_goes_two_faults_deep_within_its_budget(swept: Swept) -> None:
    told, directory = swept.as_dict(), swept.directory
    ran = told["ran"]
    assert swept.exit_code == ExitCode.PASS
    assert told["planned"] == told["runs"] == told["struck"] == 8 and told["results"] == {"pass": 8}
    assert [each["again"] for each in ran[:4]] == [None] * 4
    assert all(each["again"] == each["struck"]["number"] > 0 for each in ran[4:])
    assert (directory / results.SWEEP_FILE).exists() and not (directory / "runs").exists()


def test_one_that_was_stopped_goes_on(swept: Swept, tmp_path: Path) -> None:
    asked = Sweep(PLAN, "kill", "load", 2)
    made: list[int] = []
    cut_short = carry_out(
        asked, tmp_path, most=4, workers=1, stop=lambda: len(made) > 0 and made[-1] == 6,
        watch=lambda done, total, failing: made.append(done),
    )  # fmt: skip
    assert len(cut_short.ran) == 6 and cut_short.planned == 8 and cut_short.exit_code == ExitCode.UNKNOWN
    known = before(cut_short.directory, asked)
    assert known == {each.point: each for each in cut_short.ran}
    made.clear()
    whole = carry_out(
        asked, tmp_path, most=4, done=known, workers=1, watch=lambda done, total, failing: made.append(done)
    )
    assert min(made) >= 6, "two are left"
    assert whole.as_dict()["ran"] == swept.as_dict()["ran"] and whole.again == swept.again
    with pytest.raises(BadArguments, match="is another exploration: its depth is 2, not 1"):
        before(cut_short.directory, asked._replace(depth=1))
    with pytest.raises(BadArguments, match=r"its rate is 40\.0, not 7\.0"):
        before(cut_short.directory, asked._replace(plan=PLAN.model_copy(update={"rate": 7.0})))
    with pytest.raises(BadArguments, match="its seed is 3, not 4"):  # whatever else the other seed draws
        before(cut_short.directory, asked._replace(plan=PLAN.model_copy(update={"seed": 4, "rate": 7.0})))
    (cut_short.directory / results.SWEEP_FILE).write_text("{}")
    with pytest.raises(BadArguments, match="is not what chaos explore --every writes"):
        before(cut_short.directory, asked)


def test_what_was_counted_struck_and_found_is_printed(swept: Swept, capsys: pytest.CaptureFixture[str]) -> None:
    systematic.print_sweep(Terminal(), swept)
    printed = capsys.readouterr().out
    counted = sum(swept.counted.values())
    assert f"{counted:,} operations counted while a node loads its logs: broker-1 " in printed
    assert f"{swept.again:,} operations counted while a node loads its logs after the first strike" in printed
    assert "8 runs, 8 struck: 8 passed, 0 failed, 0 unknown" in printed and "replay" not in printed


def test_a_run_that_fails_is_kept_and_repeats(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sweep = Sweep(PLAN, "fsync", "load")
    found = carry_out(sweep, tmp_path, step=11, workers=1, simulate=_believing_the_page_cache)
    assert found.exit_code == ExitCode.FAIL and len(found.ran) == found.struck == 8
    assert [str(each.point) for each in found.failing] == ["broker-1 12", "broker-2 12", "broker-3 12"]
    systematic.print_sweep(Terminal(), found)
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split()[:5] == ["broker-1", "12", "sync", "chaos-0/00000000000000000039.log", "FlushedOffset"]
    assert "8 runs, 8 struck: 5 passed, 3 failed, 0 unknown" in lines
    first = found.failing[0]
    assert first.failure is not None and first.failure.directory is not None
    html = (found.directory / "index.html").read_text()
    assert "FlushedOffset" in html and f'href="runs/{first.failure.directory.name}/report.html"' in html
    again = replay(first.failure.directory)
    assert not again.is_same, "the code that is repeated is whole"
    assert again.simulated.schedule == sweep.job(first.point).schedule


def _believing_the_page_cache(*job: object) -> object:
    """In a worker process."""
    segment.believe_the_disk = lambda file: None
    return simulate(*job)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("every", "given", "seeds", "said"),
    [
        (None, {"step"}, 100, "--step is of what strikes in every operation, and needs --every"),
        ("kill", {"nemesis"}, 1, "--every kill and --nemesis do not go together: it strikes by itself"),
        ("kill", {"until_failure"}, 1, "--every kill and --until-failure do not go together"),
        ("kill", {"seeds"}, 2, "--every is of one seed, and --seeds has 2; give one, such as --seeds 7"),
    ],
)  # fmt: skip
def test_what_does_not_go_with_it_is_told(every: str | None, given: set[str], seeds: int, said: str) -> None:
    with pytest.raises(BadArguments, match=f"^{said}"):
        systematic.check(every, "produce", given, seeds, 1, None, 1)


def test_numbers_that_make_no_sense_are_told() -> None:
    for step, most, depth, said in ((0, None, 1, "--step is 0"), (1, 0, 1, "--most is 0"), (1, None, 3, "--depth is")):
        with pytest.raises(BadArguments, match=f"^{said}"):
            systematic.check("kill", "produce", (), 1, step, most, depth)
    for of, depth, said in (("load", 1, "--every late strikes messages"), ("produce", 2, "--every late")):
        with pytest.raises(BadArguments, match=f"^{said}"):
            systematic.check("late", of, (), 1, 1, None, depth)


def test_a_run_that_ends_before_its_strike_is_one_that_failed() -> None:
    """A violation before anything was struck is a finding, and costs no other run."""
    violation = Violation("LogMatching", "two logs differ", "chaos-0", ("broker-1",), 5, 5, "append")
    early = simulate(PLAN, ())
    assert evidence_of(replace(early, violation=violation)) == {}


def test_what_seeds_would_draw_needs_no_room() -> None:
    short = read_options("--time-limit 6 --nemesis kill")
    with pytest.raises(BadArguments, match="no fault of kill fits into --time-limit 6"):
        planned(short, [11])
    plan, _ = planned(short, [11], draws_faults=False)
    assert (plan.time_limit, plan.seed) == (6.0, 11)
