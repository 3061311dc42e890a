"""What is at the paths that `chaos check` is given: runs, datasets, foreign histories, addresses.

Of a directory that is none of these itself, all that lies below it, each once: histories whatever they are called and
whatever lies beside them, but not the same one once more in another of Jepsen's notations. What is hidden (its name
begins with a dot) is being written, and what is no regular file (a pipe, say) is no history.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from harness.errors import BadArguments
from harness.record import results

if TYPE_CHECKING:
    from spark_history.jepsen.events.event import Event

_HISTORY: Final = re.compile(r"\.(edn|jsonl|ndjson)(\.gz)?$", re.IGNORECASE)
#: Files that are rarely histories.
_PERHAPS: Final = re.compile(r"\.(json|txt|log)(\.gz)?$", re.IGNORECASE)
_OPERATION: Final = re.compile(r'"(?:type|process)"\s*:|:type\s+:(?:invoke|ok|fail|info)\b|:process\s')
#: As what Jepsen writes one history into a run's directory, the most exact first.
_OF_JEPSEN: Final = tuple(
    re.compile(rf"{name}(\.gz)?$", re.IGNORECASE)
    for name in (r"history\.edn", r"history\.(jsonl|ndjson|json)", r"history\.txt", r"jepsen\.log")
)
_COMPARED: Final = 200  # events


@dataclass(frozen=True)
class HistorySource:
    path: Path
    kind: str  # run, dataset, history or address
    address: str = ""


def find(
    paths: Sequence[str], results_directory: Path, say: Callable[[str], None] = lambda _: None
) -> list[HistorySource]:
    """What is at the paths, each once. say: what is left out though it looks like a history. Raises BadArguments for
    the first that is nothing."""
    found: dict[Path, HistorySource] = {}
    for text in paths:
        for source in _find(text, results_directory, say):
            found.setdefault(source.path.resolve(), source)
    return list(found.values())


def _find(text: str, results_directory: Path, say: Callable[[str], None]) -> list[HistorySource]:
    path = Path(text)
    if ":" in text:  # else Arrow and Spark need not be imported to know
        from spark_history.errors import HistoryError
        from spark_history.spark.locations import is_remote, local_path

        if is_remote(text):
            return [HistorySource(path, "address", text)]
        try:
            path = local_path(text)
        except HistoryError as error:
            raise BadArguments(str(error)) from None
        if path != Path(text) and not path.exists():
            raise BadArguments(f"there is nothing at {text}")
        text = str(path)
    if text and path.is_file():
        return [HistorySource(path, "history")]
    if text and path.exists() and not path.is_dir():
        raise BadArguments(f"{text} is no file, and a history is read more than once; write what it gives to a file")
    places = [results_directory / text, path] if text and text != "latest" else []
    for place in places:
        if not results.is_run(place) and place.is_dir():
            inside = list(_inside(place, say))
            if inside:
                return inside
    return [HistorySource(results.find(text, results_directory), "run")]


def _inside(directory: Path, say: Callable[[str], None]) -> Iterator[HistorySource]:
    """What a directory that is no run holds."""
    if (directory / "dataset" / "runs").is_dir():
        yield HistorySource(directory / "dataset", "dataset")
        for each in sorted((directory / "runs").glob(f"*{results.SHRUNK}*")):  # the others are in the dataset
            if results.is_run(each):
                yield HistorySource(each, "run")
        return
    if (directory / "runs").is_dir() and (directory / "operations").is_dir():
        yield HistorySource(directory, "dataset")
        return
    files: list[Path] = []
    for each in sorted(directory.iterdir()):
        if each.name.startswith("."):
            continue
        if not each.is_dir():
            files += [each] if each.is_file() and _is_history(each, say) else []
        elif not each.is_symlink():  # e.g. Jepsen's `latest`
            if results.is_run(each):
                yield HistorySource(each, "run")
            else:
                yield from _inside(each, say)
    yield from (HistorySource(each, "history") for each in _each_once(files))


def _is_history(path: Path, say: Callable[[str], None]) -> bool:
    """By its content. A file that is called so and is empty or damaged counts: what it held is missing."""
    from spark_history.errors import HistoryError
    from spark_history.jepsen.events.text import TextFile
    from spark_history.jepsen.events.text_events import TEXT_LINE

    called_so = _HISTORY.search(path.name) is not None
    if not called_so and not _PERHAPS.search(path.name):
        return False
    try:
        head = TextFile(path).head()
    except HistoryError:
        return called_so
    if _OPERATION.search(head) or any(TEXT_LINE.search(line) for line in head.split("\n")):
        return True
    if called_so and head.strip():
        say(f"{path} is left out: it holds no operation")
        return False
    return called_so


def _each_once(files: Sequence[Path]) -> list[Path]:
    """Files of one directory without those that are one history in another of Jepsen's notations."""
    notations = [path for pattern in _OF_JEPSEN for path in files if pattern.fullmatch(path.name)]
    if len(notations) < 2:
        return list(files)
    reported: list[list[Event]] = []
    again = set()
    for path in notations:
        events = _beginning(path)
        if any(_same(events, each) for each in reported):
            again.add(path)
        elif events:
            reported.append(events)
    return [path for path in files if path not in again]


def _beginning(path: Path) -> list[Event]:
    """As many as are compared, or as can be read."""
    from spark_history.errors import HistoryError
    from spark_history.jepsen.events.events import open_history

    events: list[Event] = []
    try:
        events.extend(islice(open_history(path).events, _COMPARED))
    except HistoryError:
        return events
    return events


def _same(events: Sequence[Event], others: Sequence[Event]) -> bool:
    """Do they tell of the same operations? One may be cut off before the other."""
    return all(_gist(one) == _gist(other) for one, other in zip(events, others, strict=False))


def _gist(event: Event) -> tuple[Any, ...]:
    """What all notations have in common: as text, an error and prose can look like a value."""
    from spark_history.jepsen.events.plain import to_json

    reported = isinstance(event.process, int) and event.type in ("invoke", "ok")
    return event.type, event.process, event.f, to_json(event.value) if reported else None
