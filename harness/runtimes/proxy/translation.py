"""What responses say of where brokers are, with others in their place: so that clients go on by the proxy."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping
from typing import Any, Final

from cluster_image.wire import WireError, decode_response, encode_response, response_correlation_id

Address = tuple[str, int]
#: By API key, the fields of a response whose elements have `host` and `port`: Produce and Fetch name new leaders
#: (KIP-951), Metadata and DescribeCluster all brokers, FindCoordinator coordinators.
_NAMED: Final[Mapping[int, tuple[str, ...]]] = {
    0: ("node_endpoints",), 1: ("node_endpoints",), 3: ("brokers",), 10: ("coordinators",), 60: ("brokers",),
}  # fmt: skip
_FIND_COORDINATOR: Final = 10


def translated(frame: bytes, api_key: int, version: int, others: Mapping[Address, Address]) -> bytes:
    """A frame without its length, that of the answer to a request of this API and version; returns one with it.

    What cannot be read is passed on as it is, with a warning: a client may then go past the proxy."""
    if api_key not in _NAMED:
        return len(frame).to_bytes(4) + frame
    try:
        response = decode_response(frame, api_key, version)
    except WireError as error:
        logging.warning("a response of API %d, version %d, cannot be read: %s", api_key, version, error)
        return len(frame).to_bytes(4) + frame
    changes: dict[str, Any] = {}
    for field in _NAMED[api_key]:
        if elements := getattr(response, field, None):
            changes[field] = tuple(_moved(element, others) for element in elements)
    if api_key == _FIND_COORDINATOR and hasattr(response, "host"):  # until version 3 it names one, at the top
        response = _moved(response, others)
    if not changes and api_key != _FIND_COORDINATOR:
        return len(frame).to_bytes(4) + frame
    return bytes(encode_response(dataclasses.replace(response, **changes), response_correlation_id(frame)))


def _moved(element: Any, others: Mapping[Address, Address]) -> Any:
    other = others.get((element.host, element.port))
    return element if other is None else dataclasses.replace(element, host=other[0], port=type(element.port)(other[1]))
