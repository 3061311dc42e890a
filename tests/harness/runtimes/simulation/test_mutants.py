"""Mutants: which there are of a piece of code, and that one of them, switched on, is what runs."""

from __future__ import annotations

import ast
import importlib
import sys
import textwrap
from pathlib import Path
from typing import Any, Final

import pytest

import cluster_image
from cluster_image.kraft.broker import rules
from cluster_image.storage.epoch_cache import EpochCache
from harness.errors import BadArguments
from harness.explore.simulate import simulate
from harness.plan.plan import Plan
from harness.runtimes.simulation.mutants import places
from harness.runtimes.simulation.mutants.operators import OPERATORS
from harness.runtimes.simulation.mutants.places import find, mutants_of
from harness.runtimes.simulation.mutants.reached import statement_of, watched
from harness.runtimes.simulation.mutants.switch import switched_on

CODE = '''
class Counter:
    def add(self, amount: int = 1) -> int:
        """Adds."""
        log.info("adding", amount + 1)
        self._trace("add", amount=1)
        if amount < 0 and self.strict:
            raise ValueError(f"{amount} is below {0}")
        self.total.add(amount, self.limit)
        return 3 if amount == 2 else max(amount, self.limit)

    def __repr__(self) -> str:
        return str(1)
'''


@pytest.fixture
def counter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    file = tmp_path / "counter.py"
    file.write_text(textwrap.dedent(CODE))
    monkeypatch.setattr(places, "source_of", lambda module: file)
    return [f"{each.operator}: {each.before} -> {each.after}" for each in mutants_of("counter")]


def test_each_operator_changes_what_it_is_for_and_nothing_that_only_tells(counter: list[str]) -> None:
    assert sorted(counter) == sorted([
        "condition: if amount < 0 and self.strict -> if True", "condition: if amount < 0 and self.strict -> if False",
        "condition: amount < 0 and self.strict -> self.strict", "condition: amount < 0 and self.strict -> amount < 0",
        "comparison: amount < 0 -> amount <= 0", "comparison: amount < 0 -> amount >= 0", "constant: 0 -> 1",
        "call: self.total.add(amount, self.limit) -> ",
        "argument: self.total.add(amount, self.limit) -> self.total.add(self.limit, amount)",
        "condition: 3 if amount == 2 else max(amount, self.limit) -> 3",
        "condition: 3 if amount == 2 else max(amount, self.limit) -> max(amount, self.limit)",
        "constant: 3 -> 4", "constant: 2 -> 3", "comparison: amount == 2 -> amount != 2",
    ])  # fmt: skip


def test_every_mutant_of_a_module_is_code_that_differs_at_one_place() -> None:
    module = "kraft.broker.rules"
    source = places.source_of(module).read_text()
    texts = set()
    for mutant in mutants_of(module):
        text = ast.unparse(places.mutated(mutant))
        assert text != ast.unparse(ast.parse(source)), mutant.id
        texts.add(text)
    assert len(texts) > 0.95 * len(mutants_of(module)), "hardly any two are the same"
    assert {each.operator for each in mutants_of(module)} <= OPERATORS.keys()


def test_a_mutant_is_what_runs_whoever_has_imported_the_function_and_nothing_is_left_behind() -> None:
    imported = rules.start_following
    mutant = next(each for each in mutants_of("kraft.broker.rules") if each.function == "start_following")
    before = imported.__code__
    with switched_on(mutant.id):
        assert imported.__code__ is not before
    assert imported.__code__ is before
    method = next(each for each in mutants_of("storage.epoch_cache") if each.function.startswith("EpochCache."))
    name = method.function.partition(".")[2]
    sound = vars(EpochCache)[name].__code__
    with switched_on(method.id):
        assert vars(EpochCache)[name].__code__ is not sound
    assert vars(EpochCache)[name].__code__ is sound


def test_a_mutant_that_is_not_there_is_refused_in_a_sentence() -> None:
    with pytest.raises(BadArguments, match="no such place"):
        find("kraft.broker.rules:may_join_isr:comparison:99")
    with pytest.raises(BadArguments, match="no module"):
        find("kraft.nothing:f:call:0")


def test_a_run_of_a_mutant_repeats_and_the_code_is_whole_after_it() -> None:
    """A follower that nobody lets into the ISR."""
    plan = Plan(run="mutant", on="simulation", nemesis=("kill",), time_limit=20, rate=20, partitions=1, concurrency=1)
    sound = simulate(plan).trace_hash
    mutant = plan.model_copy(update={"mutant": "kraft.broker.rules:may_join_isr:comparison:1"})
    first, second = simulate(mutant), simulate(mutant)
    assert first.violation is not None and first.violation.property == "IsrExpands"
    assert first.trace_hash == second.trace_hash != sound
    assert simulate(plan).trace_hash == sound


SHORT: Final = Plan(run="m", on="simulation", seed=3, nemesis=(), rate=20.0, partitions=2, time_limit=2.0)


def test_what_a_run_comes_to_is_known_and_changes_nothing() -> None:
    modules = ["kraft.broker.rules", "kraft.broker.partition", "kraft.controller.unclean_recovery"]
    mutants = [mutant for name in modules for mutant in mutants_of(name)]
    plain = simulate(SHORT)
    with watched(mutants) as seen:
        marked = simulate(SHORT)
    assert marked.trace_hash == plain.trace_hash == simulate(SHORT).trace_hash
    of = {mutant.id: seen.may_differ_with(mutant) for mutant in mutants}
    assert any(comes for id_, comes in of.items() if ":Partition.append:" in id_), "records were written"
    assert not any(comes for id_, comes in of.items() if ":UncleanRecovery._decide:" in id_), "nobody was lost"


def test_a_mutant_that_makes_no_difference_is_told_before_it_runs() -> None:
    """Where it is come to, with values by which it decides the same."""
    modules = ["kraft.broker.rules", "replication.rules", "replication.follower_state", "kraft.raft.rules"]
    mutants = [mutant for name in modules for mutant in mutants_of(name)]
    with watched(mutants) as seen:
        plain = simulate(SHORT)
    come = [mutant for mutant in mutants if statement_of(mutant) in seen.lines[mutant.module]]
    same = [mutant for mutant in come if not seen.may_differ_with(mutant)]
    assert len(same) > 10 and {mutant.operator for mutant in same} == {"comparison", "condition"}
    for mutant in same[:: len(same) // 10]:
        done = simulate(SHORT.model_copy(update={"mutant": mutant.id}))
        assert done.trace_hash == plain.trace_hash, mutant.id


@pytest.mark.parametrize(("code", "values", "differ"), [
    ("a < b", (1, 2), ()),
    ("a < b", (2, 2), ("comparison:0",)),  # a <= b
    ("a > b", (2, 2), ("comparison:0",)),
    ("a and b", (True, True), ()),
    ("a and b", (False, True), ("condition:0",)),  # b
    ("a and b", (True, False), ("condition:1",)),  # a
    ("a or b", (True, False), ("condition:0",)),
    ("a if b else c", (1, 2), ("condition:1",)),  # c
    ("a if b else c", (1, 0), ("condition:0",)),
])  # fmt: skip
def test_where_a_change_makes_a_difference(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, code: str, values: tuple[Any, Any], differ: tuple[str, ...]
) -> None:  # fmt: skip
    (tmp_path / "made_up.py").write_text(f"def decide(a, b, c=0):\n    return {code}\n")
    monkeypatch.setattr(cluster_image, "__path__", [*cluster_image.__path__, str(tmp_path)])
    mutants = mutants_of("made_up")
    try:
        with watched(mutants) as seen:
            function = importlib.import_module("cluster_image.made_up").decide
            plain = eval(code, {}, dict(zip("abc", (*values, 0), strict=True)))
            assert function(*values) == plain
        assert {id_.partition("decide:")[2] for id_ in seen.differed} == set(differ)
        told = [mutant for mutant in mutants if mutant.id in seen.told]
        assert told and all(seen.may_differ_with(each) == (each.id in seen.differed) for each in told)
    finally:
        mutants_of.cache_clear()
        sys.modules.pop("cluster_image.made_up")
