"""Settings of topics: those that override a node's, those of topics alone (throttling.py), and those of Apache Kafka's
that change nothing here.

The last kind is taken and told again, as tools and programs set them without asking: here no log is compacted, and no
batch compressed anew.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from . import NO_LIMIT, NO_UNCLEAN_RECOVERY, SETTINGS, TOPIC_SETTINGS, ConfigError, Setting, boolean, integer, one_of
from .throttling import TOPIC_THROTTLES

_NOT_COMPACTED: Final = "logs are not compacted"
_AS_SENT: Final = "batches are kept as producers have compressed them"
_NO_INDEX: Final = "segments have no index files"
_CODECS: Final = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")


def _number(low: int, high: int = NO_LIMIT) -> tuple[str, Callable[[str], int]]:
    """What is valid, and how it is read."""
    return f"an integer from {low} on" if high == NO_LIMIT else f"an integer from {low} to {high}", integer(low, high)


def _share(text: str) -> float:
    if not 0 <= float(text) <= 1:
        raise ValueError(text)
    return float(text)


def _unused(name: str, type_: str, default: str, valid: str, read: Callable[[str], object], why: str) -> Setting:
    return Setting(name, type_, default, valid, f"Changes nothing here: {why}.", read)


#: By name, with Kafka's defaults.
UNUSED: Final[Mapping[str, Setting]] = {
    setting.name: setting
    for setting in (
        _unused("delete.retention.ms", "long", "86400000", *_number(0), _NOT_COMPACTED),
        _unused("min.compaction.lag.ms", "long", "0", *_number(0), _NOT_COMPACTED),
        _unused("max.compaction.lag.ms", "long", str(NO_LIMIT), *_number(1), _NOT_COMPACTED),
        _unused("min.cleanable.dirty.ratio", "double", "0.5", "a number from 0 to 1", _share, _NOT_COMPACTED),
        _unused("compression.type", "string", "producer", ", ".join(_CODECS), one_of(*_CODECS), _AS_SENT),
        _unused("compression.gzip.level", "int", "-1", *_number(-1, 9), _AS_SENT),
        _unused("compression.lz4.level", "int", "9", *_number(1, 17), _AS_SENT),
        _unused("compression.zstd.level", "int", "3", *_number(-131072, 22), _AS_SENT),
        _unused("file.delete.delay.ms", "long", "60000", *_number(0), "a deleted log is removed at once"),
        _unused("segment.ms", "long", "604800000", *_number(1), "segments roll by their size"),
        _unused("segment.jitter.ms", "long", "0", *_number(0), "segments roll by their size"),
        _unused("segment.index.bytes", "int", "10485760", *_number(4, 2**31 - 1), _NO_INDEX),
        _unused("index.interval.bytes", "int", "4096", *_number(0, 2**31 - 1), _NO_INDEX),
        _unused("preallocate", "boolean", "false", "true or false", boolean, "segments grow as they are written"),
        _unused("message.timestamp.type", "string", "CreateTime", "CreateTime", one_of("CreateTime"),
                "records have the time that their producer gave them"),
        _unused("message.timestamp.before.max.ms", "long", str(NO_LIMIT), *_number(0), "any time is taken"),
        _unused("message.timestamp.after.max.ms", "long", "3600000", *_number(0), "any time is taken"),
        _unused("unclean.leader.election.enable", "boolean", "false", "false (see unclean.recovery.strategy)",
                lambda text: {"false": False}[text.lower()], "unclean.recovery.strategy decides it"),
    )
}  # fmt: skip


def setting_of(name: str) -> Setting:
    """The setting that a topic's own of this name overrides, or that is of topics alone. Raises ConfigError."""
    if name in UNUSED:
        return UNUSED[name]
    if name in TOPIC_SETTINGS:
        return SETTINGS[TOPIC_SETTINGS[name]]
    if name in TOPIC_THROTTLES:
        return TOPIC_THROTTLES[name]
    known = ", ".join([*TOPIC_SETTINGS, *TOPIC_THROTTLES, *UNUSED])
    raise ConfigError(f"unknown topic setting {name!r}; valid are {known}")


def is_list(setting: Setting) -> bool:
    return setting.type == "list"


def check_topic_settings(overrides: Mapping[str, str], elr_enabled: bool) -> None:
    """Raise ConfigError unless every override is a setting that a topic can have, with a valid value.
    elr_enabled: eligible.leader.replicas.version of this cluster."""
    for name, text in overrides.items():
        setting_of(name).value_of(text, name)
    if "unclean.recovery.strategy" in overrides and not elr_enabled:
        raise ConfigError(NO_UNCLEAN_RECOVERY)
