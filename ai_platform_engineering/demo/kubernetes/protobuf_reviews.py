"""Reads a SelfSubjectAccessReview that a client sends as protobuf, the encoding of Kubernetes' own types.

client-go encodes the built-in types this way; it accepts JSON in answers, so nothing is written.
"""

from ai_platform_engineering.demo.estate.cluster_objects import Json

PROTOBUF = "application/vnd.kubernetes.protobuf"
_MAGIC = b"k8s\x00"
_VARINT = 0
_LENGTH_DELIMITED = 2
_FIXED_SIZES = {1: 8, 5: 4}  # bytes by wire type
_MAX_VARINT_BYTES = 10
# Field numbers of k8s.io/apimachinery's Unknown and of k8s.io/api's authorization/v1.
_UNKNOWN_RAW = 2
_REVIEW_SPEC = 2
_SPEC_RESOURCE_ATTRIBUTES = 1
_ATTRIBUTES = {
    1: "namespace",
    2: "verb",
    3: "group",
    4: "version",
    5: "resource",
    6: "subresource",
    7: "name",
}


class InvalidProtobuf(ValueError):
    """Bytes that are no protobuf message of Kubernetes."""


def read_review(body: bytes) -> Json:
    """The review as JSON has it. Raises InvalidProtobuf."""
    if not body.startswith(_MAGIC):
        raise InvalidProtobuf("the body does not begin as protobuf of Kubernetes does")
    review = _read_fields(body[len(_MAGIC) :]).get(_UNKNOWN_RAW, b"")
    spec = _read_fields(review).get(_REVIEW_SPEC, b"")
    attributes = _read_fields(spec).get(_SPEC_RESOURCE_ATTRIBUTES)
    if attributes is None:
        return {"spec": {}}
    texts: Json = {}
    for number, value in _read_fields(attributes).items():
        if number in _ATTRIBUTES:
            texts[_ATTRIBUTES[number]] = value.decode(errors="replace")
    return {"spec": {"resourceAttributes": texts}}


def _read_fields(message: bytes) -> dict[int, bytes]:
    """The fields of a message that are bytes, texts or messages, the last of each number."""
    fields: dict[int, bytes] = {}
    position = 0
    while position < len(message):
        key, position = _read_varint(message, position)
        number = key >> 3
        wire_type = key & 7
        if wire_type == _VARINT:
            _, position = _read_varint(message, position)
        elif wire_type in _FIXED_SIZES:
            position += _FIXED_SIZES[wire_type]
        elif wire_type == _LENGTH_DELIMITED:
            length, position = _read_varint(message, position)
            if position + length > len(message):
                raise InvalidProtobuf("a field is longer than its message")
            fields[number] = message[position : position + length]
            position += length
        else:
            raise InvalidProtobuf(f"unknown wire type {wire_type}")
    return fields


def _read_varint(message: bytes, position: int) -> tuple[int, int]:
    value = 0
    for index in range(_MAX_VARINT_BYTES):
        if position + index >= len(message):
            break
        byte = message[position + index]
        value |= (byte & 0x7F) << (7 * index)
        if not byte & 0x80:
            return value, position + index + 1
    raise InvalidProtobuf("a number does not end")
