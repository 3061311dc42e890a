"""`--guided`: what makes the runs of an exploration, and the corpus that it begins with and leaves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING

from harness.errors import BadArguments, HarnessFailure

if TYPE_CHECKING:
    from harness.explore.guided.guide import Guide
    from harness.explore.workers import Job
    from harness.plan.plan import Plan


def guide_of(
    plan: Plan, plan_of: Callable[[Plan, int], Plan], numbers: Sequence[int], begin: Sequence[Job] = ()
) -> Guide:
    """Of an exploration (see planned) with these seeds. begin: runs of a corpus, whose code may have had no bug."""
    from harness.explore.guided.guide import Guide
    from harness.explore.workers import Job
    from harness.plan import registry
    from harness.plan import schedule as schedules

    nemeses = registry.make_nemeses(plan.nemesis, plan.acks, plan.timing)

    def fresh(seed: int) -> Job:
        return Job(plan_of(plan, seed), schedules.build(nemeses, seed, plan.time_limit, plan.pace))

    bug = {"bug": plan.bug, "mutant": plan.mutant}
    return Guide(fresh, numbers, [job._replace(plan=job.plan.model_copy(update=bug)) for job in begin])


def of_corpus(corpus: Path | None) -> Sequence[Job]:
    """Raises BadArguments."""
    from harness.explore.guided.corpus import load

    return load(corpus) if corpus is not None else ()


def make_corpus(corpus: Path) -> None:
    """At once: what is found would have no place in the end. Raises BadArguments."""
    try:
        corpus.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=corpus) as tried:
            tried.write(b"{}")
    except OSError as error:
        raise BadArguments(f"nothing can be kept in --corpus {corpus}: {error.strerror}") from error


def keep_corpus(guide: Guide, corpus: Path) -> int:
    """How many runs it has then. Raises HarnessFailure."""
    from harness.explore.guided.corpus import save

    try:
        return save(guide.finish().entries, corpus, guide.not_run)
    except OSError as error:
        raise HarnessFailure(f"the corpus cannot be kept in {corpus}: {error.strerror}") from error
