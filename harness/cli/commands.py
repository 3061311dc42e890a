"""The commands of `chaos`, each imported only once it is asked for: most need much that the others do not."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final, NamedTuple

import typer
from typer.core import TyperGroup

from harness.errors import ended_by_ctrl_c


class Lazy(NamedTuple):
    """Where a command is, and what `chaos --help` says of it. attribute: a function, or a typer.Typer of several."""

    module: str
    attribute: str
    help: str


COMMANDS: Final = {
    "run": Lazy("run", "run", "Start a cluster, work on it, break it, and judge what it did."),
    "check": Lazy("histories.check", "check", "Judge runs again from their histories, or histories that others made."),
    "explore": Lazy("simulated.explore", "explore", "Simulate many seeds in parallel, and say which failed."),
    "suite": Lazy("suites.suite", "suite", "Run the plans of a file, for CI: a table, JUnit, an exit code."),
    "matrix": Lazy("suites.matrix", "matrix", "Run every row of a file under each of its columns, as one table."),
    "logs": Lazy("histories.logs", "logs", "Merge what nodes logged and traced, faults and operations."),
    "prove": Lazy("simulated.prove", "prove", "Measure how soon explorations find bugs of record, and mutants."),
    "replay": Lazy("simulated.replay", "replay", "Repeat a run, and tell its story, or how often it fails."),
    "shrink": Lazy("simulated.replay", "shrink", "Make a simulated run that fails as small as it can be."),
    "inspect": Lazy("simulated.replay", "inspect", "Read disks and traces of a run's nodes again, and judge by them."),
    "generate": Lazy("histories.generate", "generate", "Write a labelled history, right or with a defect."),
    "export": Lazy("histories.export", "export", "Write a run's history for Jepsen's tools."),
    "serve": Lazy("results.serve", "serve", "Show runs, suites and trends in a browser."),
    "report": Lazy("results.report", "report", "Write the same pages as files, for any web server."),
    "diff": Lazy("results.diff", "diff", "Show in what two runs differ."),
    "note": Lazy("results.note", "note", "Keep a text with a run, such as a link to an issue."),
    "results": Lazy("results.prune", "results_command", "Remove old results."),
    "list": Lazy("listing", "list_", "Show runs and their verdicts, or what there is to choose from."),
    "target": Lazy("target", "target", "Get what a target needs, beforehand."),
    "image": Lazy("machine", "image", "Keep the images of nodes in a file."),
    "install": Lazy("machine", "install", "Put on hosts what runs over SSH need there: what is missing."),
    "doctor": Lazy("machine", "doctor", "Say what this machine can do and what is missing."),
    "clean": Lazy("machine", "clean", "Remove whatever dead runs left on this machine."),
}


class Commands(TyperGroup):
    """All of COMMANDS."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return None
        if cmd_name not in self.commands:
            self.commands[cmd_name] = _command(cmd_name, COMMANDS[cmd_name])
        return self.commands[cmd_name]

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, each.help) for name, each in COMMANDS.items()])


def _command(name: str, of: Lazy) -> Any:
    with ended_by_ctrl_c():
        found = getattr(import_module(f"harness.cli.{of.module}"), of.attribute)
    if isinstance(found, typer.Typer):
        found.info.name = name
        return typer.main.get_command(found)
    alone = typer.Typer(add_completion=False, rich_markup_mode=None)
    alone.command(name)(found)
    return typer.main.get_command(alone)
