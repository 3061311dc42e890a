"""Answers for requests that no active controller has decided on."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from cluster_image import wire
from cluster_image.wire import unanswered
from tests.cluster_image.wire.entities import random_entity

#: Of the quorum itself, which answers them on every voter; and what any node answers, or each of its connections.
_NOT_DECIDED = {1, 17, 18, 36, 52, 53, 54, 55, 59}
DECIDED = [
    (api, version)
    for api, (low, high) in wire.SUPPORTED["controller"].items()
    for version in range(low, high + 1)
    if api not in _NOT_DECIDED
]


@pytest.mark.parametrize(("api", "version"), DECIDED)
def test_every_request_has_an_answer_that_is_only_an_error(api: int, version: int) -> None:
    """Of any version: it can be encoded, and says the error, of the whole or of each item asked for."""
    random = Random(api)
    for _ in range(30):
        request = random_entity(wire.request_schema(api, version), random)
        answer = unanswered.error_answer(request, ErrorCode.not_controller, "no")
        decoded = wire.decode_response(wire.encode_response(answer, 1)[4:], api, version)
        assert not unanswered.says(decoded, ErrorCode.request_timed_out)
        whole = getattr(answer, "error_code", None)
        if whole is not None:
            assert whole is ErrorCode.not_controller and unanswered.says(decoded, ErrorCode.not_controller)
            continue
        asked = next(
            a
            for name in ("topics", "topic_names", "topic_partitions", "resources")
            if (a := getattr(request, name, 0)) != 0
        )
        items = next(getattr(answer, n) for n in ("topics", "results", "responses", "replica_election_results")
                     if hasattr(answer, n))  # fmt: skip
        assert len(items) == len(asked or ())
        assert unanswered.says(decoded, ErrorCode.not_controller) is bool(parts_of(items))
        for item in items:
            for part in getattr(item, "partition_result", (item,)):
                assert part.error_code is ErrorCode.not_controller


def parts_of(items: Sequence[Any]) -> Sequence[Any]:
    """What has an error code of its own, in the first of them."""
    return [part for item in items[:1] for part in getattr(item, "partition_result", (item,))]
