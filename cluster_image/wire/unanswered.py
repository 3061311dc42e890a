"""Answers that carry nothing but an error, for requests that only the active controller can decide on.

Each API has its own place for an error: of the whole answer, or of each item asked for.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Final

from kio.schema.errors import ErrorCode

from ..network import Entity
from .messages import NO_THROTTLE, make, response_module

#: What an answer's own fields are when there is nothing to say.
_NOTHING: Final[dict[str, Any]] = {
    "throttle_time": NO_THROTTLE,
    "topics": (),
    "responses": (),
    "replica_election_results": (),
    "nodes": (),
    "producer_id_start": -1,
    "producer_id_len": 0,
    "should_shut_down": False,
}


def says(answer: Any, error: ErrorCode) -> bool:
    """Is this an answer with the error for the whole? Of items that are alike it looks at the first only."""
    if hasattr(answer, "error_code"):
        return bool(answer.error_code is error)
    parts = next((part for field in fields(answer) if isinstance(part := getattr(answer, field.name), tuple)), ())
    return bool(parts) and says(parts[0], error)


def error_answer(request: Any, error: ErrorCode, message: str | None = None) -> Entity:
    """An answer with this error for the whole of any request that the controller serves."""
    module = response_module(request)
    name = type(request).__name__.replace("Request", "Response")
    answer = getattr(module, name)
    match name:
        case "CreateTopicsResponse":
            topics = tuple(
                make(
                    module.CreatableTopicResult, name=t.name, error_code=error, error_message=message, topic_id=None,
                    topic_config_error_code=ErrorCode.none, num_partitions=-1, replication_factor=-1, configs=None,
                )
                for t in request.topics
            )  # fmt: skip
            return make(answer, throttle_time=NO_THROTTLE, topics=topics)
        case "CreatePartitionsResponse":
            results = tuple(
                make(module.CreatePartitionsTopicResult, name=t.name, error_code=error, error_message=message)
                for t in request.topics
            )
            return make(answer, throttle_time=NO_THROTTLE, results=results)
        case "DeleteTopicsResponse":
            by_name = request.__version__ < 6
            asked: list[tuple[Any, Any]] = (
                [(n, None) for n in request.topic_names] if by_name else [(t.name, t.topic_id) for t in request.topics]
            )
            responses = tuple(
                make(module.DeletableTopicResult, name=n, topic_id=i, error_code=error, error_message=message)
                for n, i in asked
            )
            return make(answer, throttle_time=NO_THROTTLE, responses=responses)
        case "IncrementalAlterConfigsResponse":
            resources = tuple(
                module.AlterConfigsResourceResponse(
                    error_code=error, error_message=message, resource_type=r.resource_type,
                    resource_name=r.resource_name,
                )
                for r in request.resources
            )  # fmt: skip
            return make(answer, throttle_time=NO_THROTTLE, responses=resources)
        case "ElectLeadersResponse" if request.__version__ == 0:
            # The error of the whole came with version 1.
            results = tuple(
                module.ReplicaElectionResult(
                    topic=t.topic,
                    partition_result=tuple(
                        module.PartitionResult(partition_id=i, error_code=error, error_message=message)
                        for i in t.partitions
                    ),
                )
                for t in request.topic_partitions or ()
            )
            return make(answer, throttle_time=NO_THROTTLE, replica_election_results=results)
        case _:
            return make(answer, error_code=error, error_message=message, **_NOTHING)
