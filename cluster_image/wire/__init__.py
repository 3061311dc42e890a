"""Kafka's wire format: kio entities to frames and back, and the API versions that each listener serves.

A frame is a 4-byte big-endian length and that many bytes: a header and the message
(https://kafka.apache.org/protocol). Functions that encode return whole frames; those that decode take a frame
without its length. Nothing here touches a socket.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from functools import cache
from types import ModuleType
from typing import Any, Final, Literal, NamedTuple

from kio.index import load_payload_module
from kio.index import load_request_schema as kio_request_schema
from kio.index import load_response_schema as kio_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader
from kio.static.constants import EntityType

from cluster_image.network import Entity, Versions
from cluster_image.wire import own_messages
from cluster_image.wire.encoder import Encoded, arrays, encoder
from cluster_image.wire.guard import MAX_ELEMENTS as MAX_ELEMENTS
from cluster_image.wire.guard import checked

Listener = Literal["broker", "controller"]
#: Of a frame, one after the other.
Parts = list[bytes | memoryview]

API_VERSIONS: Final = 18
PRODUCE: Final = 0
FETCH: Final = 1
#: librdkafka 2.16 asks for all topics with an array count of four bytes where the version has one of one byte. The rest
#: of the message then means the same, with bytes to spare; Apache Kafka does not look for any.
METADATA: Final = 3

#: What each kind of listener answers, and advertises by ApiVersions.
SUPPORTED: Final[Mapping[Listener, Versions]] = {
    "broker": {
        0: (3, 11),  # Produce
        1: (4, 18),  # Fetch: topic ids from 13, replica state from 15
        2: (1, 8),  # ListOffsets
        3: (0, 13),  # Metadata
        10: (0, 6),  # FindCoordinator: an error, which clients show at once
        17: (1, 1),  # SaslHandshake, between nodes
        18: (0, 4),  # ApiVersions
        19: (2, 7),  # CreateTopics
        20: (1, 6),  # DeleteTopics: by id too from 6
        21: (0, 2),  # DeleteRecords
        22: (0, 4),  # InitProducerId
        23: (2, 4),  # OffsetForLeaderEpoch
        32: (1, 4),  # DescribeConfigs
        35: (1, 4),  # DescribeLogDirs
        36: (0, 2),  # SaslAuthenticate, between nodes
        37: (0, 3),  # CreatePartitions
        43: (0, 2),  # ElectLeaders
        44: (0, 1),  # IncrementalAlterConfigs: of topics and brokers
        45: (0, 1),  # AlterPartitionReassignments
        46: (0, 0),  # ListPartitionReassignments
        55: (2, 2),  # DescribeQuorum, passed on
        60: (0, 2),  # DescribeCluster
        64: (0, 0),  # UnregisterBroker
        75: (0, 0),  # DescribeTopicPartitions, with ELR
        93: (0, 0),  # GetReplicaLogInfo, of the controller in unclean recovery
    },
    "controller": {
        1: (18, 18),  # Fetch of the metadata log, with the follower's high watermark
        17: (1, 1),  # SaslHandshake
        18: (0, 4),  # ApiVersions
        19: (2, 7),  # CreateTopics
        20: (1, 6),  # DeleteTopics
        36: (0, 2),  # SaslAuthenticate
        37: (0, 3),  # CreatePartitions
        43: (0, 2),  # ElectLeaders
        44: (0, 1),  # IncrementalAlterConfigs
        45: (0, 1),  # AlterPartitionReassignments
        46: (0, 0),  # ListPartitionReassignments
        52: (2, 2),  # Vote, with pre-vote
        53: (1, 1),  # BeginQuorumEpoch
        54: (1, 1),  # EndQuorumEpoch
        55: (2, 2),  # DescribeQuorum
        59: (1, 1),  # FetchSnapshot, of the metadata
        56: (3, 3),  # AlterPartition, with the broker epochs of the ISR
        62: (4, 4),  # BrokerRegistration
        63: (1, 1),  # BrokerHeartbeat
        64: (0, 0),  # UnregisterBroker
        67: (0, 0),  # AllocateProducerIds
    },
}


class WireError(Exception):
    """A peer broke the protocol. The connection it came by is closed; nothing else is affected."""


class MalformedFrame(WireError):
    """Bytes that are no valid frame of the API and version they claim to be."""


class UnsupportedRequest(WireError):
    """An API key or version that this listener does not serve."""


class RequestHeader(NamedTuple):
    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


#: A request of any API may be so long. All but Produce name things, and carry no records.
SMALL_REQUEST_BYTES: Final = 1 << 20

#: A frame that is longer is not copied once it is complete: a megabyte takes as long as a request.
LONG_FRAME_BYTES: Final = 64 << 10

_MANY: Final = 500
_LENGTH: Final = struct.Struct(">i")
_API_KEY: Final = struct.Struct(">h")
_REQUEST_HEADER: Final = struct.Struct(">hhih")  # key, version, correlation id, length of the client id
_CORRELATION_ID: Final = struct.Struct(">i")


class _Codec(NamedTuple):
    """How one side of one API version is read."""

    read: Any  # (bytes, position) -> (entity, its size in bytes)
    schema: type[Any]
    flexible_header: bool  # a header with tagged fields


def request_schema(api_key: int, version: int) -> type[Any]:
    """The entity type of a request, kio's or our own."""
    own = own_messages.SCHEMAS.get((api_key, version))
    return own[0] if own is not None else kio_request_schema(api_key, version)


def response_schema(api_key: int, version: int) -> type[Any]:
    """As request_schema, of the response."""
    own = own_messages.SCHEMAS.get((api_key, version))
    return own[1] if own is not None else kio_response_schema(api_key, version)


@cache
def _request_codec(api_key: int, version: int) -> _Codec:
    schema = request_schema(api_key, version)
    return _Codec(entity_reader(schema), schema, schema.__header_schema__.__flexible__)


@cache
def _response_codec(api_key: int, version: int) -> _Codec:
    schema = response_schema(api_key, version)
    return _Codec(entity_reader(schema), schema, schema.__header_schema__.__flexible__)


def encode_request(request: Entity, correlation_id: int, client_id: str | None) -> bytes:
    """A whole frame, length included."""
    return b"".join(request_parts(request, correlation_id, client_id))


def request_parts(request: Entity, correlation_id: int, client_id: str | None) -> Parts:
    """The parts of a whole frame, length included: long records are not copied."""
    name = b"" if client_id is None else client_id.encode()
    name_length = -1 if client_id is None else len(name)
    frame = Encoded(_LENGTH.size)
    frame += _REQUEST_HEADER.pack(request.__api_key__, request.__version__, correlation_id, name_length)
    frame += name
    return _with_message(frame, request)


def encode_response(response: Entity, correlation_id: int) -> bytes:
    """A whole frame, length included."""
    return b"".join(response_parts(response, correlation_id))


def response_parts(response: Entity, correlation_id: int) -> Parts:
    """As request_parts, of a response."""
    frame = Encoded(_LENGTH.size)
    frame += _CORRELATION_ID.pack(correlation_id)
    return _with_message(frame, response)


def is_long(message: Entity) -> bool:
    """Does it take more than some milliseconds to encode?"""
    partitions = 0
    schema: Any = type(message)
    for name in arrays(schema):
        items = getattr(message, name) or ()
        if len(items) > _MANY:
            return True
        for item in items:
            partitions += len(getattr(item, "partitions", ()))
    return partitions > _MANY


def _with_message(frame: Encoded, message: Entity) -> Parts:
    if message.__header_schema__.__flexible__:
        frame.append(0)  # no tagged fields in the header
    schema: Any = type(message)
    encoder(schema)(frame, message)
    _LENGTH.pack_into(frame, 0, frame.size() - _LENGTH.size)
    return frame.parts()


def decode_request_header(frame: bytes) -> tuple[RequestHeader, int]:
    """The part of the header that every version shares, and the position after it. Raises MalformedFrame."""
    if len(frame) < _REQUEST_HEADER.size:
        raise MalformedFrame(f"a request of {len(frame)} bytes has no header")
    api_key, version, correlation_id, name_length = _REQUEST_HEADER.unpack_from(frame)
    start = _REQUEST_HEADER.size
    if name_length < 0:
        return RequestHeader(api_key, version, correlation_id, None), start
    end = start + name_length
    if end > len(frame):
        raise MalformedFrame(f"a client id of {name_length} bytes in a request of {len(frame)}")
    try:
        client_id = frame[start:end].decode()
    except UnicodeDecodeError as error:
        raise MalformedFrame("a client id that is not UTF-8") from error
    return RequestHeader(api_key, version, correlation_id, client_id), end


def decode_request(frame: bytes, served: Versions, max_elements: int = MAX_ELEMENTS) -> tuple[RequestHeader, Entity]:
    """As decode_request_header and decode_request_message."""
    header, position = decode_request_header(frame)
    return header, decode_request_message(header, frame, position, served, max_elements)


def decode_request_message(
    header: RequestHeader, frame: bytes, position: int, served: Versions, max_elements: int = MAX_ELEMENTS
) -> Entity:
    """What comes after the header: from `position` on. max_elements: what it may name of topics, partitions, replicas
    and so on, all in all. Raises MalformedFrame, or UnsupportedRequest for what is not in `served`."""
    lowest, highest = served.get(header.api_key, (0, -1))
    if not lowest <= header.api_version <= highest:
        raise UnsupportedRequest(f"API key {header.api_key} version {header.api_version} is not served here")
    codec = _request_codec(header.api_key, header.api_version)
    more_may_follow = header.api_key == METADATA
    return _decode(codec, frame, position, more_may_follow=more_may_follow, max_elements=max_elements)


def response_correlation_id(frame: bytes) -> int:
    """Raises MalformedFrame."""
    if len(frame) < _CORRELATION_ID.size:
        raise MalformedFrame(f"a response of {len(frame)} bytes has no header")
    correlation_id: int = _CORRELATION_ID.unpack_from(frame)[0]
    return correlation_id


def decode_response(frame: bytes, api_key: int, version: int) -> Entity:
    """The answer to a request of that key and version. Raises MalformedFrame."""
    return _decode(_response_codec(api_key, version), frame, _CORRELATION_ID.size)


def _decode(
    codec: _Codec, frame: bytes, position: int, *, more_may_follow: bool = False, max_elements: int = MAX_ELEMENTS
) -> Entity:
    try:
        frame, position = checked(
            codec.schema,
            frame,
            position,
            flexible_header=codec.flexible_header,
            more_may_follow=more_may_follow,
            max_elements=max_elements,
        )
        entity, size = codec.read(frame, position)
    except Exception as error:  # kio raises its own errors, ValueError, OverflowError … for bad input
        raise MalformedFrame(f"no valid {codec.schema.__name__} v{codec.schema.__version__}: {error}") from error
    if position + size != len(frame):
        raise MalformedFrame(f"{len(frame) - position - size} bytes too many after {codec.schema.__name__}")
    return entity


def expects_response(request: Entity) -> bool:
    """A Produce request with acks=0 is never answered; every other request is."""
    return not (request.__api_key__ == PRODUCE and request.acks == 0)


def answer_api_versions(version: int, served: Versions) -> Entity:
    """The ApiVersionsResponse of a listener. A version that is not served is answered as version 0 with
    UNSUPPORTED_VERSION and the versions of ApiVersions itself, so that any client can go on (KIP-511)."""
    lowest, highest = served[API_VERSIONS]
    known = lowest <= version <= highest
    schema = _api_versions_schema(version if known else 0)
    advertised = served if known else {API_VERSIONS: served[API_VERSIONS]}
    throttle_time = {"throttle_time": timedelta(0)} if known and version >= 1 else {}
    return schema.ApiVersionsResponse(
        error_code=ErrorCode.none if known else ErrorCode.unsupported_version,
        api_keys=tuple(
            schema.ApiVersion(api_key=key, min_version=low, max_version=high)
            for key, (low, high) in sorted(advertised.items())
        ),
        **throttle_time,
    )


@cache
def _api_versions_schema(version: int) -> ModuleType:
    return load_payload_module(API_VERSIONS, version, EntityType.response)


class FrameSplitter:
    """Cuts a stream of bytes into frames."""

    def __init__(self, max_frame_bytes: int, allowed: Callable[[int], int] | None = None) -> None:
        """allowed: how long a request of an API key may be, if not max_frame_bytes; None: these are no requests."""
        self._max_frame_bytes = max_frame_bytes
        self._allowed = allowed
        self._buffer = bytearray()
        self._long: io.BytesIO | None = None  # what has come of a long frame, without its length: its bytes become it
        #: Bytes of the frame that has begun and not ended; 0: there is none, or its length is not known yet.
        self.begun = 0

    @property
    def received(self) -> int:
        """Of the frame that has begun."""
        return len(self._buffer) if self._long is None else _LENGTH.size + self._long.tell()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The frames, without their lengths, that `data` completes. Raises MalformedFrame for a length below
        zero or above the maximum, before any of that frame is kept."""
        if self._long is not None:
            missing = self.begun - self.received
            self._long.write(memoryview(data)[:missing])
            if len(data) < missing:
                return
            frame, self._long, self.begun = self._long.getvalue(), None, 0
            yield frame
            data = data[missing:]
        self._buffer += data
        start = 0
        self.begun = 0
        try:
            while len(self._buffer) - start >= _LENGTH.size:
                length: int = _LENGTH.unpack_from(self._buffer, start)[0]
                content = start + _LENGTH.size
                self._check(length, content)
                end = content + length
                if end > len(self._buffer):
                    self.begun = _LENGTH.size + length
                    if length > LONG_FRAME_BYTES and len(self._buffer) >= content + _API_KEY.size:
                        self._long = io.BytesIO()
                        self._long.write(memoryview(self._buffer)[content:])
                        start = len(self._buffer)
                    break
                yield bytes(memoryview(self._buffer)[content:end])
                start = end
        finally:
            del self._buffer[:start]

    def _check(self, length: int, start: int) -> None:
        most = self._max_frame_bytes
        if self._allowed is not None and length > SMALL_REQUEST_BYTES and len(self._buffer) >= start + _API_KEY.size:
            most = min(most, self._allowed(_API_KEY.unpack_from(self._buffer, start)[0]))
        if not 0 <= length <= most:
            raise MalformedFrame(f"a frame length of {length} bytes, allowed are 0 to {most}")
