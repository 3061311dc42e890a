"""Every command returns an exit code of errors.ExitCode, and every error is one sentence."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

import typer
from typer.exceptions import TyperException

from cluster_image.telemetry.printable import say
from harness.errors import BadArguments, ExitCode, HarnessFailure, RuntimeUnavailable, describe

_INTERRUPTED = 130  # what typer makes of a KeyboardInterrupt


def guarded(command: Callable[[], Any]) -> int:
    """The exit code of a command, with whatever goes wrong told in one sentence on standard error."""
    try:
        code = int(command() or 0)
        return _say("stopped", ExitCode.HARNESS_FAILURE) if code == _INTERRUPTED else code
    except TyperException as error:
        message = error.format_message().replace("Value error, ", "").rstrip(".")
        return _say(" ".join(message.split()), ExitCode.BAD_ARGUMENTS)
    except BadArguments as error:
        return _say(describe(error), ExitCode.BAD_ARGUMENTS)
    except (HarnessFailure, RuntimeUnavailable) as error:
        return _say(" ".join(str(error).split()), ExitCode.HARNESS_FAILURE)
    except (KeyboardInterrupt, typer.Abort):
        return _say("stopped", ExitCode.HARNESS_FAILURE)
    except SystemExit as end:
        # Where nobody reads on, as in `chaos list | head`, typer ends with 1: which would mean a broken property.
        if isinstance(end.__context__, BrokenPipeError):
            return ExitCode.HARNESS_FAILURE
        raise
    except OSError as error:  # of the terminal, or where output goes
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
        return _say(describe(error), ExitCode.HARNESS_FAILURE)
    except Exception as error:  # a bug of ours: still no traceback unless asked for
        if os.environ.get("CHAOS_DEBUG"):
            traceback.print_exc()
        return _say(f"internal error: {describe(error)} (CHAOS_DEBUG=1 shows where)", ExitCode.HARNESS_FAILURE)


def _say(message: str, code: ExitCode) -> ExitCode:
    say(f"chaos: {message}", file=sys.stderr)
    return code
