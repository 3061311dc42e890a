"""What each page shows, of an index and of the runs' files. The same for what is served and for what is written."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from markupsafe import Markup

from harness.record.catalog import groups
from harness.record.catalog.facts import VERDICTS, Facts, mapping, number, text
from harness.record.catalog.filters import Filter
from harness.record.catalog.index import Index
from harness.record.results import read_json
from harness.report.browse import charts, comparison, exploration, systematic, trends
from harness.report.browse.charts import Point
from harness.report.browse.live import Live, Standing
from harness.report.browse.paths import listing
from harness.report.browse.rendering import Links, clean, count, environment, glance, milliseconds, seconds, when
from harness.report.words import size

A_PAGE: Final = 50
#: Runs of an exploration, a suite or a matrix that its page lists.
MOST_OF_A_GROUP: Final = 100
MOST_FILES: Final = 1000
#: Times that a chart goes back.
MOST_TIMES: Final = 200
#: In a run's directory, first of all.
_FIRST: Final = ("report.html", "verdict.json", "plan.toml", "plan.json", "schedule.toml", "run.json", "logs")
#: What is shown of a group of some kind beside its runs: the template, and what it is given of the group's file.
_PARTS: Final[Mapping[str, tuple[str, Callable[[Mapping[str, Any]], object]]]] = {
    "exploration": ("exploration.html.j2", exploration.shown),
    groups.SYSTEMATIC: ("systematic.html.j2", systematic.shown),
}


@dataclass(frozen=True)
class Tab:
    name: str
    link: str
    count: int
    current: bool


@dataclass(frozen=True)
class File:
    """link: "": it cannot be opened here."""

    name: str
    link: str
    what: str


class NotFound(Exception):
    """There is no such entry. The message is a sentence."""


class Pages:
    """made: what stands at the foot of every page. All methods may be called from any thread; each returns HTML."""

    def __init__(self, index: Index, links: Links, made: str) -> None:
        self.index = index
        self.links = links
        self._made = made
        self._live = Live()
        self._choices: tuple[int, Mapping[str, Sequence[str]]] = (-1, {})

    def list_page(self, wanted: Filter, page: int) -> str:
        entries, found = self.index.find(wanted, A_PAGE, (page - 1) * A_PAGE)
        pages = max((found + A_PAGE - 1) // A_PAGE, 1)
        given = wanted.given()

        def at(number_: int) -> str:
            return self.links.home({**given, "page": str(number_)})

        return self.render(
            "list.html.j2", "Runs", "list", filter=wanted, choices=self._all_choices(), problems=wanted.problems(),
            filterable=True, tabs=self._tabs(wanted), entries=entries, comparable=True,
            found=_said(found, given, page, pages), page=page, pages=pages,
            previous=at(page - 1) if 1 < page <= pages else "", next=at(page + 1) if page < pages else "",
            script="", embedded="",
        )  # fmt: skip

    def written_list(self, entries: Sequence[Facts], page: int, pages: int, found: int, embedded: str) -> str:
        """One of the pages of a site that has no server. embedded: JSON of all entries, which a script searches; it is
        there on the first page alone."""

        def at(number_: int) -> str:
            return self.links.home({"page": str(number_)})

        return self.render(
            "list.html.j2", "Runs", "list", filter=Filter(), choices=self._all_choices(), problems=[],
            filterable=bool(embedded), tabs=self._tabs(Filter()), entries=entries, comparable=False,
            found=_said(found, {}, page, pages), page=page, pages=pages, previous=at(page - 1) if page > 1 else "",
            next=at(page + 1) if page < pages else "", script="search.js" if embedded else "", embedded=embedded,
        )  # fmt: skip

    def entry_page(self, path: str, *, live: bool = True, previous: Facts | None = None) -> str:
        """Of a run, an exploration of either kind, a suite or a matrix. live: whether what changes while it goes on is
        shown. previous: if it is not live, the run that it is compared with. Raises NotFound."""
        entry = self.entry(path)
        directory = self.index.results / entry.path
        runs, in_all = ([], 0) if entry.kind == "run" else self.index.find(Filter(parent=path), MOST_OF_A_GROUP)
        standing = self._live.look(directory) if live and entry.live and entry.kind == "run" else None
        part, show = _PARTS.get(entry.kind, ("", lambda found: None))
        return self.render(
            "run.html.j2", entry.name, "list", entry=entry, live=standing is not None, glance=glance(entry),
            previous=self.before(entry) if live else previous, members=self._members(entry), runs=runs,
            runs_in_all=in_all, part=part, x=show(groups.read_group(directory, entry.kind) if part else {}),
            run_link=self._run_link(entry), most_seeds=exploration.MOST_SEEDS, tables=_tables(entry, directory),
            files=self.files(entry.path, directory), **({} if standing is None else _standing(standing)),
        )  # fmt: skip

    def live_part(self, path: str) -> str:
        """What of an entry's page changes while the run goes on. Raises NotFound."""
        entry = self.entry(path)
        standing = self._live.look(self.index.results / entry.path)
        made = environment()
        return made.get_template("live.html.j2").render(
            m=made.get_template("macros.html.j2").module, entry=entry, **_standing(standing)
        )

    def compare_page(self, paths: Sequence[str]) -> str:
        given = [*paths[:2], "", ""][:2]
        known = [self.index.get(path) if path else None for path in given]
        problem = ""
        if len(paths) != 2:
            problem = "Two runs are compared with each other; give two, by their names here." if len(paths) < 2 else (
                f"Two runs are compared with each other, and {len(paths)} are ticked."
            )  # fmt: skip
        elif missing := [
            path for path, entry in zip(given, known, strict=True) if entry is None or entry.kind != "run"
        ]:
            problem = f"There is no run {missing[0]!r} here."
        a, b = known
        found = None
        if not problem and a is not None and b is not None:
            found = comparison.compare((self.index.results / a.path, self.index.results / b.path), (a, b))
        return self.render(
            "compare.html.j2", "Two runs", "compare", problem=problem, given=given, a=a, b=b, found=found
        )

    def trends_page(self, suite: str, plan: str) -> str:
        """suite: "": all there are. plan: "": all of the suite."""
        if not suite:
            known = [(name, len(self.index.suite_runs(name))) for name in self._all_choices().get("suite", ())]
            return self.render("trends.html.j2", "Trends", "trends", suite="", suites=known)
        times = trends.times(self.index, suite)[-MOST_TIMES:]
        if not times:
            raise NotFound("No suite of that name is on record here.")
        plans = trends.plans(times)
        results: Sequence[tuple[Facts, trends.Result]] = ()
        if plan:
            results = next((each.results for each in plans if each.name == plan), ())
            if not results:
                raise NotFound("The suite has no plan of that name.")
            drawn = self._plan_charts(results)
        else:
            drawn = self._suite_charts(times)
        return self.render(
            "trends.html.j2", f"Trends of {suite}", "trends", suite=suite, suites=[], plan=plan, plans=plans,
            times=times, charts=drawn, results=list(results),
        )  # fmt: skip

    def message(self, title: str, sentence: str, files: Sequence[File] | None = None) -> str:
        return self.render(
            "message.html.j2", title, "", message=sentence, **({} if files is None else {"files": files})
        )

    def entry(self, path: str) -> Facts:
        """Raises NotFound."""
        entry = self.index.get(path)
        if entry is None:
            raise NotFound("There is no such run, exploration, suite or matrix here.")
        return entry

    def files(self, path: str, directory: Path) -> list[File]:
        """What a directory holds, that of a run with what is read most first."""
        found, more = listing(directory, MOST_FILES)
        found.sort(key=lambda each: (_FIRST.index(each[0]) if each[0] in _FIRST else len(_FIRST), each[0]))
        listed = [
            File(f"{name}/" if is_directory else name, self.links.file(f"{path}/{name}" if path else name),
                 "" if is_directory else size(length))
            for name, is_directory, length in found
        ]  # fmt: skip
        return [*listed, *([File("…", "", f"{more:,} more are not listed")] if more else [])]

    def before(self, entry: Facts) -> Facts | None:
        """The run before this one that is most like it: of the same plan of a suite, else of the same nemeses."""
        if entry.kind != "run":
            return None
        of_the_plan = Filter(kind="run", suite=entry.suite, plan=entry.plan_name)
        alike = Filter(kind="run", target=entry.target, nemesis=entry.nemeses[0] if entry.nemeses else "")
        for wanted in (*([of_the_plan] if entry.plan_name else []), alike):
            for other in self.index.find(wanted, A_PAGE * 4)[0]:
                earlier = (other.started_at, other.path) < (entry.started_at, entry.path)
                if earlier and (other.nemeses, other.workload) == (entry.nemeses, entry.workload):
                    return other
        return None

    def render(self, template: str, title: str, here: str, **context: Any) -> str:
        return (
            environment()
            .get_template(template)
            .render(context, links=self.links, title=title, here=here, made=self._made)
        )

    def _all_choices(self) -> Mapping[str, Sequence[str]]:
        revision, known = self._choices
        if revision != self.index.revision or not known:
            known = self.index.choices()
            known = {**known, "verdict": [word for word in VERDICTS if word in known["verdict"]]}
            self._choices = (self.index.revision, known)
        return known

    def _tabs(self, wanted: Filter) -> list[Tab]:
        """By verdict; the other filters stay."""
        given = {name: value for name, value in wanted.given().items() if name != "verdict"}
        counts = self.index.counts(Filter.of(given))
        names = {"": "all", "fail": "failed", "unknown": "unknown", "pass": "passed"}
        tabs = [
            Tab(name, self.links.home({**given, **({"verdict": word} if word else {})}),
                counts.get(word, 0) if word else sum(counts.values()), wanted.verdict == word)
            for word, name in names.items()
        ]  # fmt: skip
        others = [
            Tab(word, self.links.home({**given, "verdict": word}), counts[word], wanted.verdict == word)
            for word in ("running", "not judged") if counts.get(word)
        ]  # fmt: skip
        return [*tabs, *others]

    def _members(self, entry: Facts) -> list[trends.Result]:
        members = self.index.members(entry.path) if entry.kind == "suite" else []
        return [trends.Result(each, self.index.get(each.path) if each.path else None) for each in members]

    def _run_link(self, entry: Facts) -> Any:
        def link(directory: str) -> str:
            found = self.index.get(f"{entry.path}/{directory}") if directory else None
            return "" if found is None else self.links.entry(found)

        return link

    def _suite_charts(self, times: Sequence[trends.Time]) -> list[tuple[str, Markup]]:
        points = [
            Point(None if time.rate is None else 100 * time.rate, f"{when(time.suite.started_at)}: {time.passed} of "
                  f"{len(time.results)} passed", time.suite.verdict, self.links.entry(time.suite))
            for time in times
        ]  # fmt: skip
        return [
            (
                "Plans that passed",
                charts.line(points, "Plans that passed", "%", _ends([time.suite for time in times]), most=100.0),
            )
        ]

    def _plan_charts(self, results: Sequence[tuple[Facts, trends.Result]]) -> list[tuple[str, Markup]]:
        passed, drawn = 0, []
        ends = _ends([time for time, _ in results])
        rates = []
        for number_, (time, result) in enumerate(results, start=1):
            passed += result.member.outcome == "passed"
            rates.append(Point(100 * passed / number_, f"{when(time.started_at)}: {result.member.outcome}, {passed} of "
                               f"{number_} so far", _tone(result), self._link(time, result)))  # fmt: skip
        drawn.append(
            ("Passed, of all times so far", charts.line(rates, "Passed, of all times so far", "%", ends, most=100.0))
        )
        for title, unit, field in (
            ("Acknowledged a second", "a second", "throughput"), ("Latency, 99th percentile", "ms", "p99_ms"),
            ("Slowest recovery after a heal", "ms", "recovery_ms"),
        ):  # fmt: skip
            points = []
            for time, result in results:
                value = getattr(result.run, field) if result.run else None
                label = f"{when(time.started_at)}: {count(value) if field == 'throughput' else milliseconds(value)}"
                points.append(Point(value, label, _tone(result), self._link(time, result)))
            drawn.append(
                (f"{title}{'' if unit == 'a second' else f', {unit}'}", charts.line(points, title, unit, ends))
            )
        return drawn

    def _link(self, time: Facts, result: trends.Result) -> str:
        return self.links.entry(result.run or time)


def _ends(suites: Sequence[Facts]) -> tuple[str, str]:
    """The days of the first and the last."""
    return when(suites[0].started_at)[:10], when(suites[-1].started_at)[:10]


def _tone(result: trends.Result) -> str:
    return {"passed": "pass", "failed": "fail"}.get(result.member.outcome, "unknown")


def _said(found: int, given: Mapping[str, str], page: int, pages: int) -> str:
    if not found:
        return "Nothing fits these filters." if given else "Nothing is here yet; chaos run makes a run."
    if page > pages:
        return f"There are {pages:,} pages, and not {page:,}."
    first = (page - 1) * A_PAGE + 1
    last = min(page * A_PAGE, found)
    what = "fit" if given else "in all"
    return (
        f"{first:,} to {last:,} of {found:,}, the newest first"
        if found > A_PAGE
        else f"{found:,} {what}, the newest first"
    )


def _standing(standing: Standing) -> dict[str, Any]:
    kinds = list(dict.fromkeys(kind for kind, _ in standing.counts))
    counts = [(kind.replace("_", " "), *(standing.counts.get((kind, outcome), 0) for outcome in ("ok", "fail", "info")))
              for kind in sorted(kinds)]  # fmt: skip
    acknowledged = standing.counts.get(("append", "ok"), 0)
    whole_seconds = standing.a_second[-600:]
    first = len(standing.a_second) - len(whole_seconds)
    chart = charts.bars(whole_seconds, "Acknowledged appends", "a second", f"{first} s", f"{len(standing.a_second)} s")
    if standing.status == "running":
        force = len(standing.in_force)
        said = (
            f"In the phase {clean(standing.phase or 'start', 60)}; {acknowledged:,} appends acknowledged so far; "
            f"{force or 'no'} {'fault' if force == 1 else 'faults'} in force."
        )
    else:
        said = f"The run has ended: {clean(standing.status or 'nothing is on record', 60)}."
    return {"standing": standing, "counts": counts, "chart": chart if len(whole_seconds) > 1 else "", "said": said}


def _tables(entry: Facts, directory: Path) -> list[tuple[str, list[tuple[str, str]]]]:
    """What else is on record of a run: its plan, how its phases went, faults by kind."""
    if entry.kind != "run":
        return []
    plan, record, verdict = (read_json(directory / f"{name}.json") for name in ("plan", "run", "verdict"))
    left_out = {"run", "promise", "inside", "log"}
    fields = [(name.replace("_", " "), comparison.shown(of)) for name, of in plan.items() if name not in left_out]
    problems = record.get("problems")
    found = [
        ("Plan", fields),
        ("Faults", [(text(name), _counts(mapping(of))) for name, of in mapping(verdict.get("faults")).items()]),
        ("Seconds that each phase took",
         [(text(name), seconds(number(took))) for name, took in mapping(record.get("phases")).items()]),
        ("Problems of the harness",
         [(str(at), text(each)) for at, each in enumerate(problems if isinstance(problems, list) else (), start=1)]),
    ]  # fmt: skip
    return [(name, rows) for name, rows in found if rows]


def _counts(of: Mapping[str, Any]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {comparison.shown(value)}" for name, value in of.items())
