"""A wrapper of any driver that lies about what its client does: `python -m tests.workloads.clients.lying LIE COMMAND…`.

| lie | it |
| --- | --- |
| early | acknowledges at once, and hands every tenth batch to the client half a second later |
| drop | acknowledges every tenth batch, and hands it to nobody |
| double | hands every tenth batch to the client twice, and says so of one alone |
| reorder | tells of each two records of a batch that they were acknowledged in each other's place |
| skip | leaves out the first record of every tenth piece that is read |
| crash | ends, in the midst of its work, after 2,000 records |
| hang | says nothing any more after 2,000 records |
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from typing import Any

lie, *command = sys.argv[1:]
client = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
assert client.stdin is not None and client.stdout is not None
told = threading.Lock()
batches = pieces = records = 0
#: What is not to be told a second time, by value.
silent: dict[int, int] = {}


def say(**fields: Any) -> None:
    with told:
        sys.stdout.write(json.dumps(fields) + "\n")
        sys.stdout.flush()


def hand_over(asked: dict[str, Any]) -> None:
    assert client.stdin is not None
    client.stdin.write(json.dumps(asked).encode() + b"\n")
    client.stdin.flush()


def acknowledge(asked: dict[str, Any]) -> None:
    say(
        **{"is": "produced", "first": asked["first"], "count": asked["count"], "complete": time.monotonic_ns()},
        offset=-1,
    )


def hear() -> None:
    global batches
    for line in sys.stdin:
        asked = json.loads(line)
        if asked["do"] != "produce":
            hand_over(asked)
            continue
        batches += 1
        tenth = batches % 10 == 0
        if lie == "early":
            silent.update((asked["first"] + n, 1) for n in range(asked["count"]))
            acknowledge(asked)
            threading.Timer(0.5 * tenth, hand_over, [asked]).start() if tenth else hand_over(asked)
        elif lie == "drop" and tenth:
            acknowledge(asked)
        elif lie == "double" and tenth:
            silent.update((asked["first"] + n, 1) for n in range(asked["count"]))
            hand_over(asked)
            hand_over(asked)
        else:
            hand_over(asked)
    client.stdin and client.stdin.close()


def produced(said: dict[str, Any]) -> None:
    """A record at a time, which is as true."""
    global records
    for n in range(said["count"]):
        value = said["first"] + n
        records += 1
        if lie in ("crash", "hang") and records > 2000:
            if lie == "crash":
                client.kill()
                sys.exit(3)
            time.sleep(1000)
        if silent.pop(value, 0):
            continue
        offset = said.get("offset", -1)
        if offset >= 0:
            offset += n
            if lie == "reorder" and said["count"] > 1 and n < said["count"] // 2 * 2:
                offset += 1 if n % 2 == 0 else -1
        say(**{**said, "first": value, "count": 1, **({} if "error" in said else {"offset": offset})})


threading.Thread(target=hear, daemon=True).start()
for line in client.stdout:
    said = json.loads(line)
    if said["is"] == "produced":
        produced(said)
    elif said["is"] == "read" and lie == "skip":
        pieces += 1
        if pieces % 10 == 0 and said["runs"] and sum(run[2] for run in said["runs"]) > 1:
            offset, value, count = said["runs"].pop(0)
            said["runs"] = [[offset + 1, value + 1, count - 1]] * (count > 1) + said["runs"]
        say(**said)
    else:
        say(**said)
