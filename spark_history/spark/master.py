"""Where Spark is: the words that `--spark` takes.

    local, local[4], local[*]          in this process, on so many processors; the default is local[*]
    spark://HOST:PORT[,HOST:PORT…]     a standalone master, or several that stand by for each other
    sc://HOST[:PORT][/;NAME=VALUE;…]   Spark Connect; the names are Spark's own, e.g. token, user_id, use_ssl

A process has one session, so it has one master: `choose()` says which, before anything starts Spark. What the command
line needs of this costs no import of Spark.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

LOCAL: Final = "local[*]"
#: Where Spark's own pages are shown: they ask nobody who they are, and can end what runs.
LOOPBACK: Final = "127.0.0.1"
CONNECT_PORT: Final = 15002
_LOCAL: Final = re.compile(r"local(\[(\*|[1-9]\d{0,3})\])?")
_HOST: Final = r"(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)"
_STANDALONE: Final = re.compile(rf"{_HOST}:(?P<port>\d{{1,5}})")
_CONNECT: Final = re.compile(rf"sc://{_HOST}(?::(?P<port>\d{{1,5}}))?(?:/(?:;[^;=\s]+=[^;\s]*)*;?)?")


class BadMaster(ValueError):
    """No master, by its words. The message is one sentence that says what is valid."""


@dataclass(frozen=True)
class Master:
    """text: as given, without its parameters, which may hold a token; url: all of it, for Spark."""

    url: str
    kind: Literal["local", "standalone", "connect"]
    addresses: Sequence[tuple[str, int]] = ()  # any of which may answer

    @property
    def text(self) -> str:
        return self.url.partition("/;")[0]


def parse(text: str) -> Master:
    """Raises BadMaster."""
    if _LOCAL.fullmatch(text):
        return Master(text, "local")
    if text.startswith("spark://"):
        matches = [_STANDALONE.fullmatch(part) for part in text.removeprefix("spark://").split(",")]
        if all(matches):
            return Master(text, "standalone", [_address(match, None) for match in matches if match])
        raise BadMaster(f"{text!r} names no Spark master; it takes a host and a port, e.g. spark://host:7077")
    if text.startswith("sc://"):
        if match := _CONNECT.fullmatch(text):
            return Master(text, "connect", [_address(match, CONNECT_PORT)])
        shown = text.partition("/;")[0]
        raise BadMaster(f"{shown!r} names no Spark Connect server; it takes a host, e.g. sc://host:{CONNECT_PORT}")
    raise BadMaster(f"{text!r} is no Spark master; valid are local[*], local[N], spark://HOST:PORT and sc://HOST:PORT")


def _address(match: re.Match[str], default: int | None) -> tuple[str, int]:
    port = int(match["port"] or default or 0)
    if not 0 < port < 1 << 16:
        raise BadMaster(f"{match['host']}:{port} is no address: valid ports are 1 to 65535")
    return match["host"].strip("[]"), port


_chosen = Master(LOCAL, "local")


def choose(text: str) -> Master:
    """Have the session of this process, which has not started yet, on that master. Raises BadMaster."""
    global _chosen
    _chosen = parse(text)
    return _chosen


def chosen() -> Master:
    return _chosen
