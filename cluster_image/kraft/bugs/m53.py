"""M53: a controller goes on after a committed record that it could not apply, and decides by another state than others.

No run finds it by itself: no committed record contradicts the state as long as every other rule stands.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from . import Bug, original

if TYPE_CHECKING:
    from ..metadata.image import MetadataImage
    from ..metadata.records import MetadataRecord


def go_on_without_it(image: MetadataImage, offset: int, record: MetadataRecord) -> None:
    with suppress(KeyError):
        original(BUG)(image, offset, record)


BUG = Bug(
    id="M53",
    title="a controller goes on after a metadata record failed to apply",
    source="KAFKA-14275 (98a3dcb)",
    nemesis="kill,partition",
    properties=("ValidControllerState",),
    module="kraft.controller.rules",
    rule="apply",
    replacement=go_on_without_it,
)
