"""The tools' arguments. argparse, so that the node image needs nothing more than the node itself does."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, NoReturn

from ..config import read_address
from ..network import Address
from ..telemetry.printable import printable, say
from . import describe_quorum, describe_topic, dump_log
from .output import ToolError

COMMANDS: Final = ("describe-quorum", "describe-topic", "dump-log")

_PROGRAM: Final = "python -m cluster_image"


def main(arguments: Sequence[str]) -> int:
    """Run the tool that the first argument names. Returns the exit code."""
    options = _parser().parse_args(arguments)  # ends the process with 2 if they make no sense
    try:
        if options.tool == "dump-log":
            return dump_log.run(options.paths, records=options.records, as_json=options.json)
        if options.tool == "describe-quorum":
            return asyncio.run(describe_quorum.run(options.bootstrap, options.timeout, as_json=options.json))
        return asyncio.run(describe_topic.run(options.bootstrap, options.topics, options.timeout, as_json=options.json))
    except ToolError as error:
        say(f"{options.tool}: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # `… | head`
        with suppress(BrokenPipeError):
            sys.stdout.close()  # else the flush at exit would complain
        return 0
    except KeyboardInterrupt:
        return 130


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """One sentence, as for every other error."""
        self.exit(2, printable(f"{self.prog.removeprefix(f'{_PROGRAM} ')}: {message}; --help tells more\n"))


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog=_PROGRAM,
        usage="%(prog)s NODE.PROPERTIES | TOOL …",
        description="Runs a node with these settings, or a tool that looks at a cluster or at a node's files.",
    )
    tools = parser.add_subparsers(dest="tool", required=True, metavar="TOOL", prog=_PROGRAM)
    asking = _Parser(add_help=False)
    asking.add_argument(
        "--bootstrap",
        type=_addresses,
        required=True,
        metavar="HOST:PORT[,…]",
        help="nodes to ask, in this order until one answers",
    )
    asking.add_argument("--timeout", type=_seconds, default=5.0, metavar="SECONDS", help="for all of it (default: 5)")
    showing = _Parser(add_help=False)
    showing.add_argument("--json", action="store_true", help="for machines")
    tools.add_parser(
        "describe-quorum",
        parents=[asking, showing],
        help="leader, epoch and high watermark of the metadata quorum, and how far each replica is",
    )
    topic = tools.add_parser(
        "describe-topic",
        parents=[asking, showing],
        help="partitions with leader, leader epoch, replicas, ISR, ELR and LastKnownELR",
    )
    topic.add_argument("topics", nargs="*", metavar="TOPIC", help="all if none is named")
    dump = tools.add_parser(
        "dump-log",
        parents=[showing],
        help="batches of log segments and metadata snapshots, and the small files beside them",
        description="Reads only, and takes a log as it lies there: the end of one that is being written may be torn.",
    )
    dump.add_argument("paths", nargs="+", metavar="PATH", help="a file, a log's directory, or a data directory")
    dump.add_argument("--records", action="store_true", help="each record too; metadata records by name")
    return parser


def _addresses(text: str) -> list[Address]:
    try:
        return [read_address(item.strip()) for item in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not host:port") from None


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 3600:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds up to 3600")
    return value
