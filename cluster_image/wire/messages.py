"""Building kio entities for any version of an API.

A client may speak any version that the node advertises. Handlers read the fields that exist in every version
they serve and answer with `make`, which leaves out the fields that the client's version does not have.
"""

from __future__ import annotations

import dataclasses
import datetime
import importlib
from collections import Counter
from collections.abc import Hashable, Iterable
from functools import cache
from types import ModuleType
from typing import Any, Final, cast

from kio.static.primitive import i32Timedelta

from ..network import Entity

MOST_OF_MESSAGE: Final = 1000
NO_THROTTLE: Final = i32Timedelta.parse(datetime.timedelta(0))


@cache
def _response_module(module: str) -> ModuleType:
    return importlib.import_module(module.removesuffix("request") + "response")


def response_module(request: Entity) -> Any:
    """The kio module with the response classes of the same API and version as `request`."""
    return _response_module(type(request).__module__)


@cache
def _field_names(entity_type: Hashable) -> frozenset[str]:
    return frozenset(f.name for f in dataclasses.fields(cast(Any, entity_type)))


def make(entity_type: Any, **values: Any) -> Entity:
    """An entity of this version with those of `values` that the version knows."""
    known = _field_names(entity_type)
    if not values.keys() <= known:
        values = {name: value for name, value in values.items() if name in known}
    return entity_type(**values)


def repeated(items: Iterable[Hashable]) -> set[Hashable]:
    """What a request names more than once: it is refused everywhere, as no order among its items is promised, and an
    answer that is longer than its question must not grow with how often that is asked."""
    return {item for item, count in Counter(items).items() if count > 1}


def shortened(text: str) -> str:
    """Of what an answer says, in the client's own words for a part: these may be as long as a request, and what a
    string may hold is less in early versions."""
    return text if len(text) <= MOST_OF_MESSAGE else f"{text[:MOST_OF_MESSAGE]}..."


@cache
def milliseconds(value: int) -> i32Timedelta:
    return i32Timedelta.parse(datetime.timedelta(milliseconds=value))


def to_milliseconds(value: datetime.timedelta) -> int:
    return value // datetime.timedelta(milliseconds=1)


def is_topic_name(name: str) -> bool:
    """Kafka's rule: 1 to 249 of ASCII letters, digits, dot, underscore and hyphen, and not a path."""
    allowed = name.isascii() and all(c.isalnum() or c in "._-" for c in name)
    return 0 < len(name) <= 249 and allowed and name not in (".", "..", "__cluster_metadata")
