"""The tools' arguments. argparse, so that the node image needs nothing more than the node itself does."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final, NoReturn

from ..config import read_address
from ..network import Address
from ..telemetry.printable import printable, say
from . import balance, describe_quorum, describe_topic, dump_log, reassign, topics
from .cluster import Cluster
from .moves import Interrupted
from .output import ToolError

COMMANDS: Final = (
    *("describe-quorum", "describe-topic", "dump-log"),
    *("create-topic", "delete-topic", "alter-topic", "reassign", "add-brokers", "remove-broker", "rebalance"),
)

_PROGRAM: Final = "python -m cluster_image"


def main(arguments: Sequence[str]) -> int:
    """Run the tool that the first argument names. Returns the exit code."""
    options = _parser().parse_args(arguments)  # ends the process with 2 if they make no sense
    try:
        if options.tool == "dump-log":
            return dump_log.run(options.paths, records=options.records, as_json=options.json)
        return asyncio.run(_ask(options))
    except (ToolError, Interrupted) as error:
        say(f"{options.tool}: {error}", file=sys.stderr)
        return 2 if isinstance(error, ToolError) else 130
    except BrokenPipeError:  # `… | head`
        with suppress(BrokenPipeError):
            sys.stdout.close()  # else the flush at exit would complain
        return 0
    except KeyboardInterrupt:
        return 130


async def _ask(options: argparse.Namespace) -> int:
    """What a cluster is needed for. Raises ToolError, Interrupted."""
    as_json = options.json
    match options.tool:
        case "describe-quorum":
            return await describe_quorum.run(options.bootstrap, options.timeout, as_json=as_json)
        case "describe-topic":
            return await describe_topic.run(options.bootstrap, options.topics, options.timeout, as_json=as_json)
    cluster = Cluster(options.bootstrap, options.timeout)
    match options.tool:
        case "create-topic":
            settings = dict(options.config)
            return await topics.create(
                cluster, options.topic, options.partitions, options.replication_factor, settings, as_json=as_json
            )
        case "delete-topic":
            return await topics.delete(cluster, options.topics, as_json=as_json)
        case "alter-topic":
            return await topics.alter(
                cluster, options.topic, options.partitions, dict(options.config), options.delete_config, as_json=as_json
            )
        case "reassign":
            return await reassign.run(
                cluster, options.plan, throttle=options.throttle, cancelling=options.cancel, as_json=as_json
            )
        case "add-brokers":
            return await balance.add_brokers(
                cluster, options.brokers, options.wait, options.throttle,
                balance=not options.no_rebalance, as_json=as_json,
            )  # fmt: skip
        case "remove-broker":
            return await balance.remove_broker(cluster, options.broker, options.wait, options.throttle, as_json=as_json)
        case _:
            return await balance.rebalance(
                cluster, options.brokers, options.throttle, dry_run=options.dry_run, as_json=as_json
            )


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """One sentence, as for every other error."""
        self.exit(2, printable(f"{self.prog.removeprefix(f'{_PROGRAM} ')}: {message}; --help tells more\n"))


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog=_PROGRAM,
        usage="%(prog)s NODE.PROPERTIES | TOOL …",
        description="Runs a node with these settings, or a tool that looks at a cluster or a node's files, or changes "
        "a cluster.",
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
    asking.add_argument("--timeout", type=_seconds, default=5.0, metavar="SECONDS", help="for an answer (default: 5)")
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
    _add_changing(tools, [asking, showing])
    return parser


def _add_changing(tools: Any, parents: list[argparse.ArgumentParser]) -> None:
    """Tools that change a cluster, over Kafka's own APIs: of this project, or Apache Kafka."""

    def tool(name: str, help: str, **more: Any) -> argparse.ArgumentParser:
        added: argparse.ArgumentParser = tools.add_parser(name, parents=parents, help=help, **more)
        return added

    create = tool("create-topic", "a new topic, its replicas placed by the cluster")
    create.add_argument("topic", type=_text, metavar="TOPIC")
    create.add_argument("--partitions", type=_count, default=-1, help="(default: num.partitions of the cluster)")
    create.add_argument("--replication-factor", type=_factor, default=-1, help="(default: that of the cluster)")
    create.add_argument("--config", type=_setting, action="append", default=[], metavar="NAME=VALUE")
    delete = tool("delete-topic", "topics, with all their records")
    delete.add_argument("topics", nargs="+", type=_text, metavar="TOPIC")
    alter = tool("alter-topic", "more partitions, other settings")
    alter.add_argument("topic", type=_text, metavar="TOPIC")
    alter.add_argument("--partitions", type=_count, help="so many in all")
    alter.add_argument("--config", type=_setting, action="append", default=[], metavar="NAME=VALUE")
    alter.add_argument(
        "--delete-config", type=_text, action="append", default=[], metavar="NAME", help="as the cluster has it"
    )
    again = tool(
        "reassign", "move partitions as a plan says, or cancel what is under way",
        description="Returns once all of it is done, and leaders are the preferred ones. A plan is checked as a whole "
        "before any of it is begun.",
    )  # fmt: skip
    again.add_argument("--plan", metavar="FILE", help="of kafka-reassign-partitions, or of rebalance --dry-run --json")
    again.add_argument("--cancel", action="store_true", help="cancel those of the plan, or all that are under way")
    add = tool(
        "add-brokers", "wait until brokers have joined, and give them their share with the least data moved",
        description="A broker joins a cluster by being started with the cluster's id and controllers.",
    )  # fmt: skip
    add.add_argument("brokers", nargs="+", type=_broker, metavar="ID")
    add.add_argument("--no-rebalance", action="store_true", help="only wait for them")
    add.add_argument("--wait", type=_seconds, default=60.0, metavar="SECONDS", help="for them to join (default: 60)")
    remove = tool("remove-broker", "move a broker's partitions to the others, and unregister it once it has stopped")
    remove.add_argument("broker", type=_broker, metavar="ID")
    remove.add_argument("--wait", type=_seconds, default=60.0, metavar="SECONDS", help="for it to stop (default: 60)")
    balancing = tool("rebalance", "replicas and leaders within one of each other, with the least data moved")
    balancing.add_argument(
        "--brokers", type=_brokers, metavar="ID,…", help="which are to hold partitions (default: all that are alive)"
    )
    balancing.add_argument("--dry-run", action="store_true", help="only show the plan")
    for moving in (again, add, remove, balancing):
        moving.add_argument(
            "--throttle", type=_rate, metavar="BYTES/S", help="of what each broker sends and takes for it (no limit)"
        )


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


def _text(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise argparse.ArgumentTypeError(f"{text!r} is not UTF-8") from None
    return text


def _number(text: str, low: int, what: str, high: int = 2**31 - 1) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 20 or not low <= int(text) <= high:
        raise argparse.ArgumentTypeError(f"{text!r} is not {what}")
    return int(text)


def _count(text: str) -> int:
    return _number(text, 1, "a number from 1 on")


def _factor(text: str) -> int:
    return _number(text, 1, "a number from 1 to 32767", 2**15 - 1)


def _rate(text: str) -> int:
    return _number(text, 1, "a number of bytes from 1 to 2^63 - 1", 2**63 - 1)


def _broker(text: str) -> int:
    return _number(text, 0, "a broker's id")


def _brokers(text: str) -> list[int]:
    return [_broker(item.strip()) for item in text.split(",")]


def _setting(text: str) -> tuple[str, str]:
    name, separator, value = _text(text).partition("=")
    if not separator or not name.strip():
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name.strip(), value
