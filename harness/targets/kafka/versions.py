"""What Kafka's versions differ in, as far as a run depends on it."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from harness.errors import BadArguments

FIRST: Final = (3, 7)
LAST: Final = (4, 3)
ELR: Final = "eligible.leader.replicas.version"
METADATA: Final = "metadata.version"
#: Of metadata.version, 4.1-IV0.
_ELR_FROM_LEVEL: Final = 26
_FORM: Final = re.compile(r"(\d+)\.(\d+)\.(\d+)([.-][\w.-]+)?")


class Version(NamedTuple):
    """The numbers of a release; of a build after it, those that it will have."""

    major: int
    minor: int
    patch: int

    @property
    def has_elr(self) -> bool:
        """Can the feature be switched on? (KIP-966: from 4.0 on.)"""
        return self >= (4, 0)

    @property
    def elr_by_default(self) -> bool:
        """In a newly formatted cluster: from 4.1 on."""
        return self >= (4, 1)

    @property
    def features_at_format(self) -> bool:
        """`kafka-storage format --feature`: from 3.9 on (KIP-1022)."""
        return self >= (3, 9)

    @property
    def has_dynamic_quorum(self) -> bool:
        """From 3.9 on (KIP-853)."""
        return self >= (3, 9)


def elr_goes_with(metadata_version: str) -> bool:
    """Is ELR on in a cluster that is formatted with this metadata.version, a level or a release such as 3.9 or
    4.1-IV0, and nothing said of ELR itself? (EligibleLeaderReplicasVersion.java: from 4.1-IV0 on.)"""
    if metadata_version.isdecimal():
        return int(metadata_version) >= _ELR_FROM_LEVEL
    numbers = re.match(r"(\d+)\.(\d+)", metadata_version)
    return numbers is None or (int(numbers[1]), int(numbers[2])) >= (4, 1)


def is_version(wanted: str) -> bool:
    """Or else the place of a distribution."""
    return wanted[:1].isdigit() and "/" not in wanted and not wanted.endswith((".tgz", ".tar.gz"))


def is_later(text: str) -> bool:
    """Than all that are known: what it differs in, nobody can say."""
    found = _FORM.fullmatch(text)
    return found is not None and (int(found[1]), int(found[2])) > LAST


def read(text: str) -> Version:
    """Raises BadArguments."""
    found = _FORM.fullmatch(text)
    if found is None:
        raise BadArguments(f"{text!r} is no version of Kafka; give one such as 4.2.0")
    version = Version(int(found[1]), int(found[2]), int(found[3]))
    if version[:2] < FIRST or (version[:2] > LAST and not found[4]):
        supported = f"{'.'.join(map(str, FIRST))} to {'.'.join(map(str, LAST))}"
        raise BadArguments(f"Kafka {text} is not supported; {supported} are, and builds of one's own after them")
    return version
