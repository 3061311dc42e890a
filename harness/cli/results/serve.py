"""`chaos serve`: pages of all runs, for a browser on this machine, or on others if that is asked for."""

from __future__ import annotations

import ipaddress
import socket
from typing import Annotated, Any

import typer

from harness.cli.options import ResultsOption
from harness.cli.results.alive import still_running
from harness.errors import BadArguments, ExitCode, HarnessFailure
from harness.record import results
from harness.report.terminal import say

_LOOPBACK = "127.0.0.1"
_BACKLOG = 128


def serve(
    port: Annotated[int, typer.Option(metavar="PORT", help="To listen on; 0 takes a free one.")] = 8080,
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="To listen on: others than this machine can read everything then.")
    ] = _LOOPBACK,
    results_directory: ResultsOption = results.DEFAULT,
) -> int:
    """Show runs, explorations, suites and matrices in a browser: search, filter, compare, follow over time."""
    if not 0 <= port <= 65535:
        raise BadArguments(f"--port is {port}; valid is 0 to 65535")
    listening = _listen(host, port)
    with listening:
        import uvicorn

        from harness.record.catalog.index import Index
        from harness.report.browse.server import is_loopback, make_app

        index = Index(results_directory, still_running)
        index.refresh(_tell)
        address, bound = listening.getsockname()[:2]
        shown = f"[{address}]" if ":" in address else address
        if not is_loopback(address):
            say(
                f"warning: {shown} can be reached from other machines; whoever does reads everything below "
                f"{results_directory}, without a password"
            )
        say(f"http://{shown}:{bound}/ shows {results_directory}; Ctrl-C ends it")
        app: Any = make_app(index, f"chaos serve, of {results_directory.name or 'results'}", address)
        config = uvicorn.Config(
            app, log_level="error", access_log=False, server_header=False, lifespan="off", timeout_graceful_shutdown=2
        )
        try:
            uvicorn.Server(config).run([listening])
        except KeyboardInterrupt:  # uvicorn raises it again once it has ended
            pass
        finally:
            index.close()
    return ExitCode.PASS


def _listen(host: str, port: int) -> socket.socket:
    """Raises BadArguments or HarnessFailure."""
    try:
        family = socket.AF_INET6 if ipaddress.ip_address(host).version == 6 else socket.AF_INET
    except ValueError:
        if host != "localhost":
            raise BadArguments(
                f"--host {host!r} is no address; 127.0.0.1 is this machine, 0.0.0.0 all of its networks"
            ) from None
        host, family = _LOOPBACK, socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(_BACKLOG)
    except OSError as error:
        listening.close()
        raise HarnessFailure(
            f"port {port} of {host} cannot be used: {error.strerror}; give another --port, or 0 for a free one"
        ) from None
    return listening


def _tell(done: int, total: int) -> None:
    if total > 2000 and done < total and done % 2000 == 0:
        say(f"indexing: {done:,} of {total:,}")
