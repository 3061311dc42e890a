"""Who led when: of many partitions and elections, and as Kafka's nodes log it."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pandas as pd

from harness.record.timeline.partitions import Inside, Leadership, State, _logged
from harness.report.html.aggregate import Fault, Timeline
from harness.report.html.lanes import lanes

S = 1_000_000_000


def timeline(seconds: float, acknowledged: dict[str, list[int]]) -> Timeline:
    return Timeline(width=1.0, end=seconds, buckets=pd.DataFrame(), by_partition=acknowledged)


def inside(partitions: int, elections: int) -> Inside:
    states = {
        f"chaos-{number}": [
            State(at * S, at % 4 - 1 if at % 4 else -1, at, (1, 2), (3,), (1, 2, 3)) for at in range(elections)
        ]
        for number in range(partitions)
    }
    return Inside(states, [Leadership(0, "controller-1", 1), Leadership(9 * S, "controller-2", 2)], {}, {1: "broker-1"})


def test_each_partition_has_a_lane_and_a_table_says_the_same() -> None:
    quiet = {"chaos-0": [5, 0, 0, 0, 5, 5, 5, 5, 5, 5]}
    marks = {"chaos-0": [("V7", 3.5), ("V9", 8.0), ("V8", 3.5001)]}
    found = lanes(inside(2, 8), {"chaos-1": [(S, 4), (9 * S, 40)]}, 0, timeline(10, quiet), [], marks)
    assert found.svg is not None
    root = ElementTree.fromstring(str(found.svg))
    titles = [each.text or "" for each in root.iter("title")]
    assert any(
        text.startswith("chaos-0 from 2.000 s on\nleader broker-1, leader epoch 2\nISR [1, 2], ELR [3]")
        for text in titles
    )
    assert "controller-2 leads the metadata quorum in epoch 2, from 9.000 s on" in titles
    assert "chaos-0 acknowledged nothing from 1 s to 4 s" in titles and "chaos-1: high watermark, up to 40" in titles
    assert [each.get("href") for each in root.iter("a")] == ["#V7", "#V9"]
    assert "V7 at 3.500 s, and 1 more there" in titles
    assert found.rows[0] | {"partition": "chaos-0", "leader": "none", "isr": "1, 2", "elr": "3"} == found.rows[0]
    assert len(found.rows) == 16 and found.rows == sorted(found.rows, key=lambda row: row["second"])


def test_of_64_partitions_and_100_faults_all_are_there_and_the_drawing_stays_small() -> None:
    faults = [Fault(n, "kill", ["broker-1"], float(n), n + 0.5, True, {}) for n in range(100)]
    found = lanes(inside(64, 100), {}, 0, timeline(100, {}), faults, {})
    text = str(found.svg)
    assert len(re.findall(r">chaos-\d+</text>", text)) == 64 and text.count('class="band"') == 100
    assert len(text) < 4_000_000 and len(found.rows) + found.unlisted == 6400


def test_nothing_known_is_no_drawing() -> None:
    assert lanes(Inside(), {}, 0, timeline(10, {}), [], {}).svg is None
    assert lanes(inside(1, 2), {}, 0, None, [], {}).svg is None


def test_what_kafka_logs_of_a_replica_is_read() -> None:
    leads = (
        "logger: [Broker id=2] Leader chaos-3 with topic id Some(fZDjA0cxSEOCsSHKbq5xVA) starts at leader epoch 1 "
        "from offset 1261 with partition epoch 2, high watermark 1235, ISR [1,2], adding replicas [] and removing "
        "replicas [] ."
    )
    follows = (
        "logger: [Broker id=2] Follower chaos-5 starts at leader epoch 1 from offset 1248 with partition epoch 2 and "
        "high watermark 1235. Current leader is 1. Previous leader Some(3) and previous leader epoch was 0."
    )
    truncates = "UnifiedLog: [UnifiedLog partition=chaos-1, dir=/data/kafka] Truncating to offset 1274"
    event = _logged(5 * S, "broker-2", leads)
    assert event is not None and (event.event, event.where, event.time) == ("role", "chaos-3", 5.0)
    assert event.fields == {"leader": 2, "leader_epoch": 1, "isr": (1, 2), "end": 1261, "high_watermark": 1235}
    event = _logged(5 * S, "broker-2", follows)
    assert event is not None and event.fields["leader"] == 1 and event.fields["end"] == 1248
    event = _logged(5 * S, "broker-2", truncates)
    assert event is not None and (event.event, event.where, event.fields) == ("truncate", "chaos-1", {"end": 1274})
    assert _logged(5 * S, "broker-2", "LogManager: started") is None


def test_damage_leaves_nothing_and_fails_nothing(tmp_path: Path) -> None:
    from harness.record.timeline.partitions import inside_of

    for name in ("trace", "metadata_log"):
        (tmp_path / "history" / name).mkdir(parents=True)
        (tmp_path / "history" / name / f"{name}.parquet").write_bytes(b"PAR1 no more")
    found = inside_of(tmp_path)
    assert found.inside == Inside() and found.events("chaos-0") == [] and found.events("") == []
