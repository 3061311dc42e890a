"""`chaos clean`: remove what dead runs left on this machine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import docker
from docker.errors import APIError

from harness.cluster import RuntimeUnavailable
from harness.errors import BadArguments, HarnessFailure
from harness.plan.registry import targets
from harness.runtimes.docker import cleanup, engine
from harness.runtimes.docker.images import builds, images


class NotCleaned(RuntimeUnavailable):
    """Something stays. done: what was removed all the same."""

    def __init__(self, message: str, done: list[str]) -> None:
        super().__init__(message)
        self.done = done


@dataclass(frozen=True)
class Wish:
    """What to remove. run: this one, whether or not its harness lives, and nothing else. everything: also what others
    have on this machine: runs of other users, images of other checkouts."""

    run: str | None = None
    everything: bool = False


def clean(wish: Wish = Wish(), tell: Callable[[str], object] = lambda _: None) -> list[str]:
    """Remove every run of this user whose harness is dead, and what is left of builds; or what is wished. One line for
    each thing removed, and for each run left alone. tell: what will be removed, a line each, before anything is. Raises
    NotCleaned, once it has removed all that can be, and BadArguments if there is no such run."""
    api = engine.connect()
    done: list[str] = []
    stays: list[str] = []
    found = cleanup.runs(api)
    if wish.run is not None and wish.run not in found:
        named = ", ".join(sorted(found)) or "none"
        raise BadArguments(f"nothing of a run {wish.run!r} is on this machine; there is something of: {named}")
    going = {name: left for name, left in sorted(found.items()) if wish.run in (None, name)}
    for name, left in list(going.items()):
        if wish.run is None and (why := left.reason_to_stay(everything=wish.everything)):
            done.append(f"{name} was left alone: {why}")
            del going[name]
    for name, left in going.items():
        tell(f"will be removed: {name}, {left.in_words}")
    for name in going:
        try:
            done += [f"removed {thing}" for thing in cleanup.remove_run(api, name)]
        except (APIError, OSError) as error:
            reason = engine.reason_of(error)
            remedy = "; restart Docker, which has lost count, and clean again" if cleanup.lost_count(error) else ""
            stays.append(f"Not everything of run {name} could be removed ({reason}){remedy}.")
    if wish.run is None:
        _clean_builds(api, wish, done, stays)
    if stays:
        raise NotCleaned(" ".join(stays), done)
    return done


def _clean_builds(api: docker.APIClient, wish: Wish, done: list[str], stays: list[str]) -> None:
    try:
        done += [f"removed {thing}" for thing in builds.remove_dead(api)]
    except (APIError, OSError) as error:
        stays.append(f"Not everything of a killed build could be removed ({engine.reason_of(error)}).")
    superseded: list[str] = []
    try:
        packages = [package for target in targets() for package in target.packages()]
        superseded = images.superseded(api, packages, of_others=wish.everything)
    except HarnessFailure as error:  # a user's own may fail in any way
        stays.append(f"Images of nodes were left alone: {error}.")
    for tag in (*superseded, *images.of_dead_builds(api)):
        try:
            api.remove_image(tag)
        except APIError:
            continue  # a container of a run that was left alone is made of it
        done.append(f"removed image {tag}")
