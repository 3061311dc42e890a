"""EDN values: what is written is read again, and what Jepsen prints is understood."""

from __future__ import annotations

import json
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_history.jepsen.events import edn, plain
from spark_history.jepsen.events.edn import Char, EdnError, Incomplete, Keyword, Map, Symbol, Tagged

names = st.from_regex(r"[a-z*!?<>=][a-z0-9.*+!?<>=-]{0,6}(/[a-z]{1,3})?", fullmatch=True).filter(
    lambda name: name not in ("nil", "true", "false")
)
tags = names.filter(lambda name: name[0].isalpha())
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
#: No booleans and floats among the elements: Python takes 1, 1.0 and true for the same element of a set.
atoms = (
    st.none() | st.integers() | texts | names.map(Keyword) | names.map(Symbol)
    | st.characters(exclude_categories=["Cs"], max_codepoint=0xFFFF).map(Char)
)  # fmt: skip
scalars = (
    atoms | st.booleans() | st.floats(allow_nan=False)
    | st.decimals(allow_nan=False, allow_infinity=False, places=3) | st.fractions().filter(lambda f: f.denominator > 1)
)  # fmt: skip
values = st.recursive(
    scalars | atoms,
    lambda inner: (
        st.lists(inner, max_size=4).map(tuple)
        | st.frozensets(atoms, max_size=4)
        | st.dictionaries(atoms, inner, max_size=4).map(Map)
        | st.builds(Tagged, tags, inner)
    ),
    max_leaves=12,
)


@settings(max_examples=300, deadline=None)
@given(st.lists(values, max_size=3))
def test_what_is_written_is_read_again(forms: list[Any]) -> None:
    text = "\n".join(map(edn.write, forms))
    assert edn.read_all(text) == forms
    assert edn.read_all(f"; first [\n{text} ; last {{\n, #_ (1 #_ 2)") == forms


@settings(max_examples=300, deadline=None)
@given(
    st.recursive(
        atoms, lambda inner: st.lists(inner, max_size=3).map(tuple) | st.dictionaries(atoms, inner, max_size=3).map(Map)
    )
)
def test_what_is_spelt_in_json_is_told_apart(value: Any) -> None:
    assert plain.unspell(json.loads(json.dumps(plain.spell(value)))) == value


@settings(max_examples=200, deadline=None)
@given(values.filter(lambda value: isinstance(value, tuple | Map | frozenset)), st.data())
def test_a_form_that_is_cut_off_is_never_taken_for_whole(value: Any, data: st.DataObject) -> None:
    text = edn.write(value)
    cut = data.draw(st.integers(1, len(text) - 1))
    with pytest.raises(EdnError):
        edn.read(text[:cut])


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("(1 [2 #{3}])", (1, (2, frozenset({3})))),
        ("{:a 1, :b/c nil}", Map({Keyword("a"): 1, Keyword("b/c"): None})),
        ("[1N -3 +4 0x1F 1.5M 2e3 1/3]", (1, -3, 4, 31, Decimal("1.5"), 2000.0, Fraction(1, 3))),
        (r'"a\"\n\u00e9\ud83d\ude00"', 'a"\né😀'),
        (r"[\a \newline \u0041 \( \]]", (Char("a"), Char("\n"), Char("A"), Char("("), Char("]"))),
        ('#inst "2020-01-01"', Tagged("inst", "2020-01-01")),
        ("#jepsen.history.Op{:index 1}", Tagged("jepsen.history.Op", Map({Keyword("index"): 1}))),
        ('#object[java.lang.Foo 0x3d "x"]', Tagged("object", (Symbol("java.lang.Foo"), 0x3D, "x"))),
        ("#<Foo a [b>", Symbol("#<Foo a [b>")),
        ("^{:line 1} [#_ 1 2 #_#_ 3 4]", (2,)),
        ("[##Inf]", (float("inf"),)),
    ],
)
def test_what_clojure_prints(text: str, value: Any) -> None:
    assert edn.read(text) == value


@pytest.mark.parametrize("text", ["]", "[1)", "{:a}", "[#_]", "1a", r"\toolong", "1/0", '"\\q"', ":", "#"])
def test_what_is_not_edn(text: str) -> None:
    with pytest.raises(EdnError) as error:
        edn.read(text)
    assert not isinstance(error.value, Incomplete)


def test_forms_before_one_that_is_cut_off_are_kept() -> None:
    with pytest.raises(Incomplete) as cut:
        edn.read_all("{:a 1} [2] {:b [3")
    assert list(cut.value.forms) == [Map({Keyword("a"): 1}), (2,)]
    assert cut.value.used == 7
