"""dump-log: what lies in log segments, metadata snapshots and the small files beside them."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from ..telemetry.printable import say
from .log_files import Item, read_path
from .output import ToolError, print_json

_LONGEST_VALUE = 200


def run(paths: Sequence[str], *, records: bool, as_json: bool) -> int:
    """0; 1 if something is damaged; 2 if a path cannot be read. The rest is shown all the same. Raises ToolError if
    none can be read."""
    damaged, unread = 0, []
    for path in paths:
        files = 0
        try:
            for item in read_path(path, records):
                files += item["kind"] == "file"
                damaged += item["kind"] == "damage"
                if as_json:
                    print_json(item)
                else:
                    say(_shown(item))
        except BrokenPipeError:
            raise
        except (OSError, ValueError) as error:
            unread.append(f"{path}: {error.strerror}" if isinstance(error, OSError) else str(error))
        else:
            if not files:
                unread.append(f"{path} holds no log segment, snapshot or checkpoint")
    sys.stdout.flush()
    if damaged:
        say(f"dump-log: {damaged} {'place is' if damaged == 1 else 'places are'} damaged", file=sys.stderr)
    if unread:
        raise ToolError("; ".join(unread))
    return 1 if damaged else 0


def _shown(item: Item) -> str:
    match item["kind"]:
        case "file":
            return f"{item['file']}: {item['bytes']} bytes"
        case "batch":
            return "  " + _batch(item)
        case "record" if "type" in item:
            return f"    {item['offset']}: {item['type']} {_fields(item['fields'])}".rstrip()
        case "record":
            key = "" if item["key"] is None else f"{_cut(item['key'])} = "
            return f"    {item['offset']}: {key}{_cut(item['value'])}"
        case "epoch":
            return f"  epoch {item['epoch']} starts at offset {item['start_offset']}"
        case "checkpoint":
            return f"  {item['topic']}-{item['partition']}: offset {item['offset']}"
        case "content":
            return f"  {_fields(item['fields'])}"
        case _:
            where = "" if item["position"] is None else f" at byte {item['position']}"
            return f"  DAMAGED{where}: {item['reason']}"


def _batch(item: Item) -> str:
    parts = [
        f"offsets {item['base_offset']} to {item['last_offset']}",
        f"epoch {item['leader_epoch']}",
        f"{item['records']} record{'s' * (item['records'] != 1)}",
        f"{item['bytes']} bytes at {item['position']}",
        _time(item["max_timestamp"]),
    ]
    if item["producer_id"] >= 0:
        parts.append(f"producer {item['producer_id']} epoch {item['producer_epoch']} sequence {item['base_sequence']}")
    parts += [name for name in ("control", "transactional") if item[name]]
    if item["compression"] != "none":
        parts.append(item["compression"])
    return ", ".join(parts)


def _fields(values: dict[str, Any]) -> str:
    return " ".join(f"{name}={_value(value)}" for name, value in values.items())


def _value(value: Any) -> str:
    return _cut(value if isinstance(value, str) else json.dumps(value, default=str))


def _cut(value: Any) -> str:
    text = "null" if value is None else str(value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}… ({len(text)} characters)"


def _time(milliseconds: int) -> str:
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
    except (ValueError, OverflowError, OSError):
        return f"time {milliseconds}"
