"""`chaos clean`: remove what dead runs left on this machine."""

from __future__ import annotations

from docker.errors import APIError

from harness.cluster import RuntimeUnavailable
from harness.runtimes.docker import builds, cleanup, engine, images


class NotCleaned(RuntimeUnavailable):
    """Something stays. done: what was removed all the same."""

    def __init__(self, message: str, done: list[str]) -> None:
        super().__init__(message)
        self.done = done


def clean(run: str | None = None) -> list[str]:
    """Remove every run whose harness is dead, or `run` whether or not it is. One line for each thing removed, and
    for each run left alone. Raises NotCleaned, once it has removed all that can be."""
    api = engine.connect()
    done: list[str] = []
    stays: list[str] = []
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
            remedy = "; restart Docker, which has lost count, and clean again" if cleanup.lost_count(error) else ""
            stays.append(f"Not everything of run {name} could be removed ({reason}){remedy}.")
    try:
        for thing in builds.remove_dead(api) if run is None else ():
            done.append(f"removed {thing}")
    except (APIError, OSError) as error:
        reason = error.explanation if isinstance(error, APIError) else error
        stays.append(f"Not everything of a killed build could be removed ({reason}).")
    for tag in (*images.superseded(api), *images.of_dead_builds(api)):
        try:
            api.remove_image(tag)
        except APIError:
            continue  # a container of a run that was left alone is made of it
        done.append(f"removed image {tag}")
    if stays:
        raise NotCleaned(" ".join(stays), done)
    return done
