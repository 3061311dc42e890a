"""kio's integer types for the type checker alone; at run time they do nothing, which saves kio's range checks.

kio checks the range of each value that it is handed so, which costs a tenth of all that a node does; whatever crosses
the wire is checked there once more (encoder.py packs into fixed sizes).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kio.schema.types import BrokerId
    from kio.static.primitive import i8, i16, i32, i64, u16
else:

    def _as_it_is(value):
        return value

    BrokerId = i8 = i16 = i32 = i64 = u16 = _as_it_is

__all__ = ["BrokerId", "i8", "i16", "i32", "i64", "u16"]
