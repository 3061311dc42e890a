"""`chaos clean`: remove what dead runs left on this machine."""

from __future__ import annotations

from docker.errors import APIError

from harness.cluster import RuntimeUnavailable
from harness.runtimes.docker import cleanup, engine, images


def clean(run: str | None = None) -> list[str]:
    """Remove every run whose harness is dead, or `run` whether or not it is. One line for each thing removed, and
    for each run left alone. Raises RuntimeUnavailable if something stays."""
    api = engine.connect()
    done: list[str] = []
    for name, alive in sorted(cleanup.runs(api).items()):
        if run is not None and name != run:
            continue
        if run is None and alive:
            done.append(f"{name} was left alone: its harness is still running")
            continue
        try:
            done += [f"removed {thing}" for thing in cleanup.remove_run(api, name)]
        except (APIError, OSError) as error:
            reason = error.explanation if isinstance(error, APIError) else error
            raise RuntimeUnavailable(f"Not everything of run {name} could be removed ({reason}).") from error
    for tag in images.superseded(api):
        try:
            api.remove_image(tag)
        except APIError:
            continue  # a container of a run that was left alone is made of it
        done.append(f"removed image {tag}")
    return done
