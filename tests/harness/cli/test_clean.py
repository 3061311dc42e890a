"""What `chaos clean` removes, and what it leaves alone unless it is asked to."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from harness.errors import BadArguments
from harness.runtimes import clean as cleaning
from harness.runtimes.clean import Wish, clean
from harness.runtimes.docker import cleanup, engine
from harness.runtimes.docker.engine import CHECKOUT_LABEL, IMAGE_LABEL, OWNER_LABEL, RUN_LABEL, USER_LABEL
from harness.runtimes.docker.images import builds, images
from harness.runtimes.owner import owner

MINE, OTHERS = str(os.getuid()), str(os.getuid() + 1)


def thing(run: str, *, user: str | None = MINE, alive: bool = False) -> dict[str, Any]:
    labels = {RUN_LABEL: run, OWNER_LABEL: owner() if alive else "1:0"}
    return {"Id": run, "Labels": labels | ({} if user is None else {USER_LABEL: user})}


class Api:
    """An engine that has these containers, and images of two checkouts."""

    def __init__(self, things: list[dict[str, Any]]) -> None:
        self.things = things
        self.removed: list[str] = []

    def containers(self, **_: Any) -> list[dict[str, Any]]:
        return self.things

    def networks(self, **_: Any) -> list[dict[str, Any]]:
        return self.things[:1]

    def images(self, filters: dict[str, str]) -> list[dict[str, Any]]:
        if filters != {"label": IMAGE_LABEL}:
            return []
        here, there = str(images._CHECKOUT), "/elsewhere"
        return [
            {"RepoTags": [f"chaos-{kind}:{name}"], "Labels": {IMAGE_LABEL: kind} | ({CHECKOUT_LABEL: of} if of else {})}
            for kind, name, of in (
                ("node", "ours", here), ("node", "theirs", there), ("node", "old", ""), ("base", "ours", here),
                ("kafka", "own-build", here),  # of a target of which nothing is in the cache
            )
        ]  # fmt: skip

    def remove_image(self, tag: str) -> None:
        self.removed.append(tag)


@pytest.fixture
def cleaned(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> tuple[Api, list[str]]:
    api = Api([thing("mine"), thing("busy", alive=True), thing("theirs", user=OTHERS), thing("old", user=None)])
    runs: list[str] = []
    monkeypatch.setattr(engine, "connect", lambda: api)
    monkeypatch.setattr(cleanup, "VOLUMES", tmp_path)
    (tmp_path / "mine").mkdir()
    monkeypatch.setattr(cleaning.cleanup, "remove_run", lambda _, run: [runs.append(run) or run])
    monkeypatch.setattr(builds, "remove_dead", lambda _: [])
    return api, runs


def test_by_default_what_is_dead_and_of_this_user_and_checkout(cleaned: tuple[Api, list[str]]) -> None:
    api, runs = cleaned
    reported: list[str] = []
    done = clean(tell=reported.append)
    assert runs == ["mine", "old"] and api.removed == ["chaos-node:ours", "chaos-kafka:own-build"]
    assert reported == [
        "will be removed: mine, 1 container, 1 network, 1 folder of volumes", "will be removed: old, 1 container",
    ]  # fmt: skip
    assert "busy was left alone: its harness is still running" in done
    assert f"theirs was left alone: it is of user {OTHERS}; --all removes it too" in done


def test_all_means_other_users_and_checkouts_but_no_run_that_goes_on(cleaned: tuple[Api, list[str]]) -> None:
    api, runs = cleaned
    clean(Wish(everything=True))
    assert runs == ["mine", "old", "theirs"]
    assert api.removed == [
        "chaos-node:ours", "chaos-node:theirs", "chaos-node:old", "chaos-kafka:own-build",
    ]  # fmt: skip


def test_one_run_by_its_name_and_nothing_else(cleaned: tuple[Api, list[str]]) -> None:
    api, runs = cleaned
    clean(Wish("busy"))
    assert runs == ["busy"] and api.removed == []
    with pytest.raises(BadArguments, match="nothing of a run 'gone' is on this machine; there is something of: busy, "):
        clean(Wish("gone"))
