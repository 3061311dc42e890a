"""Which anomalies a consistency model forbids.

The tables follow Elle's (elle.consistency-model), which has them from Adya (Weak Consistency, 1999), Adya, Liskov and
O'Neil (Generalized Isolation Level Definitions, 2000), Bailis et al. (Highly Available Transactions, 2013), Cerone,
Bernardi and Gotsman (A Framework for Transactional Consistency Models with Atomic Visibility, 2015) and Daudjee and
Salem (Lazy Database Replication with Snapshot Isolation, 2006). A model forbids what it names, what the weaker models
that it implies name, and every anomaly that is a special case of one of these.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from spark_history.errors import HistoryError

DEFAULT: Final = "strict-serializable"

#: A model, and the weaker ones that hold where it does.
IMPLIED_MODELS: Final[Mapping[str, tuple[str, ...]]] = {
    "strict-serializable": ("serializable", "strong-snapshot-isolation", "strong-session-serializable"),
    "strong-session-serializable": ("serializable", "strong-session-snapshot-isolation"),
    "serializable": ("repeatable-read", "snapshot-isolation", "update-serializable"),
    "update-serializable": ("forward-consistent-view",),
    "strong-snapshot-isolation": ("strong-session-snapshot-isolation", "strong-read-committed"),
    "strong-session-snapshot-isolation": ("snapshot-isolation", "strong-session-read-committed"),
    "snapshot-isolation": (
        "forward-consistent-view",
        "monotonic-atomic-view",
        "monotonic-snapshot-read",
        "parallel-snapshot-isolation",
        "prefix",
    ),
    "parallel-snapshot-isolation": ("causal-cerone", "update-atomic"),
    "prefix": ("causal-cerone",),
    "causal-cerone": ("read-atomic",),
    "update-atomic": ("read-atomic",),
    "read-atomic": ("monotonic-atomic-view",),
    "forward-consistent-view": ("consistent-view",),
    "consistent-view": ("cursor-stability", "monotonic-view"),
    "repeatable-read": ("cursor-stability", "monotonic-atomic-view"),
    "cursor-stability": ("read-committed",),
    "monotonic-atomic-view": ("read-committed",),
    "monotonic-view": ("read-committed",),
    "monotonic-snapshot-read": ("read-committed",),
    "strong-read-committed": ("strong-session-read-committed", "strong-read-uncommitted"),
    "strong-session-read-committed": ("read-committed", "strong-session-read-uncommitted"),
    "strong-read-uncommitted": ("strong-session-read-uncommitted",),
    "strong-session-read-uncommitted": ("read-uncommitted",),
    "read-committed": ("read-uncommitted",),
    "read-uncommitted": (),
}

ALIASES: Final[Mapping[str, str]] = {
    "strong-serializable": "strict-serializable",
    "conflict-serializable": "serializable",
    "PL-SS": "strict-serializable",
    "PL-3": "serializable",
    "PL-SI": "snapshot-isolation",
    "PL-2.99": "repeatable-read",
    "PL-2+": "consistent-view",
    "PL-2": "read-committed",
    "PL-1": "read-uncommitted",
    "si": "snapshot-isolation",
}

_NAMED: Final[Mapping[str, tuple[str, ...]]] = {
    "strict-serializable": ("G1-realtime", "G2-item-realtime"),
    "strong-session-serializable": ("G1-process", "G2-item-process"),
    "serializable": ("internal", "G1", "G2-item"),
    "update-serializable": ("G1",),
    "strong-snapshot-isolation": ("internal", "G1-realtime", "G-nonadjacent-realtime"),
    "strong-session-snapshot-isolation": ("internal", "G1-process", "G-nonadjacent-process"),
    "snapshot-isolation": ("internal", "G1", "G-nonadjacent"),
    "parallel-snapshot-isolation": ("internal", "G1a"),
    "prefix": ("internal", "G1a"),
    "causal-cerone": ("internal", "G1a"),
    "update-atomic": ("lost-update",),
    "read-atomic": ("internal", "G1a", "future-read"),
    "forward-consistent-view": ("G1",),
    "consistent-view": ("G1", "G-single"),
    "repeatable-read": ("G1", "G2-item", "lost-update"),
    "cursor-stability": ("G1", "lost-update"),
    "monotonic-view": ("G1",),
    "monotonic-snapshot-read": ("G1",),
    "strong-read-committed": ("G1c-realtime",),
    "strong-session-read-committed": ("G1c-process",),
    "strong-read-uncommitted": ("G0-realtime",),
    "strong-session-read-uncommitted": ("G0-process",),
    "read-committed": ("G1",),
    # A value that nobody wrote, or that stands twice, is no version at all: no model has a place for it. Nor have
    # versions without an order (Elle: cyclic-versions).
    "read-uncommitted": ("G0", "duplicate-elements", "garbage-read", "cyclic-versions"),
}

CYCLES: Final = ("G0", "G1c", "G-single", "G-nonadjacent", "G2-item")
VARIANTS: Final = ("", "-process", "-realtime")  # each a special case of the next

#: An anomaly, and those it is a special case of.
_SPECIAL: Final[Mapping[str, tuple[str, ...]]] = {
    "G0": ("G1c",),
    "G1c": ("G1",),
    "G1a": ("G1",),
    "G1b": ("G1",),
    "G-single": ("G-nonadjacent",),
    "G-nonadjacent": ("G2-item",),
    "incompatible-order": ("G1a",),
    "dirty-update": ("G1a",),
    "future-read": ("G1c",),
    "lost-update": ("G2-item",),
}

#: What can be found in histories of lists and registers beside cycles.
WITHOUT_CYCLE: Final = (
    "G1a",
    "G1b",
    "internal",
    "future-read",
    "dirty-update",
    "duplicate-elements",
    "incompatible-order",
    "garbage-read",
    "lost-update",
    "cyclic-versions",
)


def implied(anomaly: str) -> frozenset[str]:
    """The anomaly itself and all those that it is a special case of."""
    found: set[str] = set()
    ahead = [anomaly]
    while ahead:
        name = ahead.pop()
        if name in found:
            continue
        found.add(name)
        base, variant = split(name)
        ahead += [more + variant for more in _SPECIAL.get(base, ())]
        ahead += [base + wider for wider in VARIANTS[VARIANTS.index(variant) + 1 :]]
    return frozenset(found)


def split(anomaly: str) -> tuple[str, str]:
    """G-single-realtime -> G-single and -realtime."""
    for variant in VARIANTS[1:]:
        if anomaly.endswith(variant):
            return anomaly.removesuffix(variant), variant
    return anomaly, ""


def model_named(name: object) -> str:
    """The model's own name. Raises HistoryError if there is none of this name."""
    text = str(name).strip().lstrip(":")
    for known in (text, text.lower()):
        model = ALIASES.get(known, known)
        if model in IMPLIED_MODELS:
            return model
    raise HistoryError(f"no consistency model is called {text!r}; there are {', '.join(sorted(IMPLIED_MODELS))}")


def forbidden(model: str) -> frozenset[str]:
    """Every anomaly, of those that can be found, that must not be there if `model` holds."""
    named: set[str] = set()
    for weaker in _closure(model):
        named.update(_NAMED.get(weaker, ()))
    return frozenset(anomaly for anomaly in _all() if implied(anomaly) & named)


def _all() -> Iterable[str]:
    return (*WITHOUT_CYCLE, *(cycle + variant for cycle in CYCLES for variant in VARIANTS))


def _closure(model: str) -> set[str]:
    found: set[str] = set()
    ahead = [model]
    while ahead:
        name = ahead.pop()
        if name not in found:
            found.add(name)
            ahead += IMPLIED_MODELS[name]
    return found
