"""`chaos doctor`, `chaos clean` and `chaos image`: what this machine can do, and what is kept on it."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from harness.cli.options import TargetOption
from harness.errors import BadArguments, ExitCode
from harness.report.terminal import say


class Where(StrEnum):
    DOCKER = "docker"
    SSH = "ssh"


HostsOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Of --on ssh: the hosts, as in docs/hosts.md.")
]


def doctor(
    on: Annotated[Where, typer.Option(help="What is to be tried: this machine, or hosts.")] = Where.DOCKER,
    hosts: HostsOption = None,
) -> int:
    """Say what this machine can do and what is missing. Or hosts, each of them tried."""
    _check(on, hosts)
    if hosts is not None:
        from harness.runtimes.ssh import hosts_file
        from harness.runtimes.ssh.doctor import hosts as of_hosts

        findings = of_hosts.checks(hosts_file.read(hosts))
    else:
        from harness.runtimes.doctor import checks

        findings = checks()
    for finding in findings:
        remedy = f"; {finding.remedy}" if finding.remedy else ""
        say(f"{finding.status:18}  {finding.name}: {finding.detail}{remedy}")
    return ExitCode.PASS if all(finding.ok for finding in findings) else ExitCode.HARNESS_FAILURE


def clean(
    run: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only this run, also if its harness is still running.")
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Also runs of other users, and images of other checkouts.")
    ] = False,
    on: Annotated[Where, typer.Option(help="What is to be cleaned: this machine, or hosts.")] = Where.DOCKER,
    hosts: HostsOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="With --on ssh: say what would be removed, and remove nothing.")
    ] = False,
) -> int:
    """Remove whatever dead runs left: containers, networks, mounts, loop devices, firewall rules. Says what first."""
    _check(on, hosts)
    if hosts is not None:
        if everything:
            raise BadArguments("--all is for this machine; on a host there is one run at a time, and --run names it")
        return _clean_hosts(hosts, run, dry_run)
    from harness.runtimes.clean import NotCleaned, Wish
    from harness.runtimes.clean import clean as clean_machine

    if dry_run:
        raise BadArguments("--dry-run is for hosts; leave it out, or give --on ssh --hosts FILE")
    if run is not None and everything:
        raise BadArguments("--run names one run, and --all means every one; give either")
    try:
        removed = clean_machine(Wish(run, everything), say)
    except NotCleaned as error:
        say("\n".join(error.done))
        raise
    say("\n".join(removed) if removed else "nothing was left")
    return ExitCode.PASS


def _clean_hosts(hosts: Path, run: str | None, looks_only: bool) -> int:
    from harness.runtimes.ssh import clean as of_hosts
    from harness.runtimes.ssh import hosts_file
    from harness.runtimes.ssh.connection.sessions import NotOnAll

    try:
        done = of_hosts.clean(hosts_file.read(hosts), run=run, looks_only=looks_only, tell=say)
    except NotOnAll as error:
        say("\n".join(line for lines in error.done.values() for line in lines))
        raise
    say("\n".join(done) if done else "nothing was left")
    return ExitCode.PASS


def install(
    hosts: Annotated[Path, typer.Option(metavar="FILE", help="The hosts, as in docs/hosts.md.")],
    target: TargetOption = "kraft",
    remove: Annotated[bool, typer.Option("--remove", help="Take away all that was ever installed there.")] = False,
) -> int:
    """Put on hosts what runs over SSH need there: what is missing. They need no internet."""
    from harness.report.console import Progress
    from harness.runtimes.ssh import hosts_file
    from harness.runtimes.ssh.connection.sessions import NotOnAll
    from harness.runtimes.ssh.installation import installing

    read = hosts_file.read(hosts)
    try:
        if remove:
            done = installing.remove_from(read)
        else:
            with Progress() as progress:
                package = None if read.service is not None else installing.package_of(target, progress.update)
                done = installing.install_on(read, package, progress.update)
    except NotOnAll as error:
        say("\n".join(error.done.values()))
        raise
    say("\n".join(done))
    return ExitCode.PASS


def _check(on: Where, hosts: Path | None) -> None:
    if (on is Where.SSH) != (hosts is not None):
        raise BadArguments("--on ssh needs --hosts FILE, which says where the hosts are; and --hosts is of --on ssh")


image = typer.Typer(add_completion=False, rich_markup_mode=None, help="Keep the images of nodes in a file.")


@image.callback()
def about() -> None:
    """Keep the images of nodes in a file, for machines that begin empty."""


@image.command()
def save(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="e.g. chaos-images.tar.gz.")],
    target: TargetOption = "kraft",
) -> int:
    """Write the images that runs of a target need to a file, built first if they are missing."""
    from harness.plan import registry
    from harness.report.console import Progress
    from harness.runtimes.docker.images import archive

    tested = registry.make_target(target)
    with Progress() as progress:
        tags = archive.save(file, tested, progress.update)
    say(f"{file}: {', '.join(tags)}")
    return ExitCode.PASS


@image.command()
def load(file: Annotated[Path, typer.Argument(metavar="FILE", help="As chaos image save has written it.")]) -> int:
    """Give the Docker Engine the images of a file, instead of building them."""
    from harness.runtimes.docker.images import archive

    say(f"loaded {', '.join(archive.load(file))}")
    return ExitCode.PASS
