"""Plans as files that people read, edit and give to `chaos run --plan` and `chaos matrix`: TOML, the fields of a Plan.

nemesis = "kill,partition"     # or a list; "none": nothing
target = "kafka:4.2.0"
time_limit = "60s"             # seconds, or with a unit
acks = "all"
expect = ["p99 < 500ms"]       # thresholds
abort_if = "unavailable > 60s" # or a list: what ends the run early
[settings]                     # --set
"replica.lag.time.max.ms" = 4000
[workload_settings]            # --workload-set
members = 3
[client_settings]              # --client-set
"linger.ms" = 5
[clients]                      # --clients: TLS and SASL of every client; secrets are env:NAME or file:PATH
"security.protocol" = "SASL_SSL"
"sasl.mechanism" = "SCRAM-SHA-512"
[features]                     # --feature
"eligible.leader.replicas.version" = 0
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from harness.errors import BadArguments, did_you_mean
from harness.plan import registry
from harness.plan.durations import seconds
from harness.plan.plan import Plan
from harness.plan.toml_file import read_toml
from harness.targets.security import given

PLAN_FILE: Final = "plan.toml"
#: Of every plan that is saved, whatever they are.
_ALWAYS: Final = ("target", "on", "nemesis", "strike", "time_limit", "seed")
#: What follows from the rest, or is another run's own.
_LEFT_OUT: Final = ("run",)
_TIMES: Final = ("time_limit", "interval", "recovery", "delete_records", "short_lived_topics")
_TABLES: Final = ("settings", "workload_settings", "client_settings", "clients", "features")


def save(plan: Plan, directory: Path) -> None:
    import tomlkit

    document = tomlkit.document()
    document.add(tomlkit.comment("The plan of this run. To repeat it, changed or not: chaos run --plan plan.toml"))
    tables = []
    for name, field in Plan.model_fields.items():
        value = getattr(plan, name)
        if name in _LEFT_OUT or (value == field.default and name not in _ALWAYS):
            continue
        if name in _TABLES:
            tables.append((name, dict(value)))
        else:
            written = list(value) if isinstance(value, tuple) else value
            document.add(name, ",".join(value) or "none" if name == "nemesis" else written)
    for name, table in tables:
        document.add(name, tomlkit.item(table))
    (directory / PLAN_FILE).write_text(tomlkit.dumps(document))


def read(path: Path) -> dict[str, Any]:
    """Fields of a Plan, as far as the file has them. Raises BadArguments."""
    return fields_of(read_toml(path, f"--plan {path}"), f"--plan {path}")


def fields_of(found: Mapping[str, Any], where: str) -> dict[str, Any]:
    """where: the beginning of a sentence about it. Raises BadArguments."""
    valid = [name for name in Plan.model_fields if name not in _LEFT_OUT]
    fields: dict[str, Any] = {}
    for name, value in found.items():
        if name not in valid:
            meant = did_you_mean(name, valid)
            raise BadArguments(f"{where} has {name!r}, which no plan has{meant}; there are {', '.join(valid)}")
        try:
            fields[name] = _field(name, value)
        except ValueError as error:
            raise BadArguments(f"{where}: {name}: {error}") from None
    return fields


def _field(name: str, value: Any) -> Any:
    """Raises ValueError, BadArguments."""
    if name == "nemesis":
        if not isinstance(value, str) and not (
            isinstance(value, list | tuple) and all(isinstance(each, str) for each in value)
        ):
            raise ValueError(f"{value!r} is no name, nor a list of names")
        return registry.parse_names(value if isinstance(value, str) else ",".join(map(str, value)) or "none")
    if name in _TIMES:
        return seconds(value)
    if name in _TABLES:
        if not isinstance(value, Mapping):
            raise ValueError("it must be a table of names and values")
        if name == "clients" and not all(isinstance(each, str) for each in value.values()):
            raise ValueError("each of its values must be a text")  # and none is repeated: it may be a secret
        if name == "clients" and (problem := given.written_out(value)) is not None:
            raise ValueError(problem)
        return {str(key): _text(key, each) for key, each in value.items()}
    if name in ("expect", "abort_if") and isinstance(value, str):
        return (value,)
    annotation: Any = Plan.model_fields[name].annotation
    try:
        return TypeAdapter(annotation).validate_python(value)
    except ValidationError as error:
        message = error.errors(include_url=False)[0]["msg"]
        raise ValueError(f"{value!r}: {message[0].lower()}{message[1:]}") from None


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str | int | float):
        raise ValueError(f"{name}: {value!r} is neither a text nor a number")
    return str(value).lower() if isinstance(value, bool) else str(value)
