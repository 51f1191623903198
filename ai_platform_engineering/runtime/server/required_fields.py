"""The check for required fields of a request; the SDK's own walks through every value at each request."""

import functools
from dataclasses import dataclass

from a2a.utils.proto_utils import validate_proto_required_fields
from google.api.field_behavior_pb2 import FieldBehavior, field_behavior  # type: ignore[import-untyped]
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message


@dataclass(frozen=True, slots=True)
class _Field:
    """A field that is required, or inside which a field is required."""

    name: str
    is_required: bool
    is_repeated: bool
    is_map: bool
    has_presence: bool
    is_nested: bool


def check_required_fields(message: Message) -> None:
    """Raises InvalidParamsError, with the SDK's list of what is missing."""
    if not _is_complete(message):
        validate_proto_required_fields(message)


def _is_complete(message: Message) -> bool:
    """Whether nothing is missing for certain; false also for what only the SDK can say."""
    for field in _find_fields(message.DESCRIPTOR):
        value = getattr(message, field.name)
        if field.is_repeated:
            if field.is_required and not value:
                return False
            if field.is_nested and (field.is_map or not all(map(_is_complete, value))):
                return False
        elif field.has_presence:
            is_set = message.HasField(field.name)
            if field.is_required and not is_set:
                return False
            if is_set and field.is_nested and not _is_complete(value):
                return False
        elif not value:  # without presence, the default counts as missing
            return False
    return True


@functools.cache
def _find_fields(descriptor: Descriptor) -> tuple[_Field, ...]:
    """The fields of a message type that have to be looked at."""
    fields: list[_Field] = []
    for field in descriptor.fields:
        is_required = _is_required(field)
        is_nested = field.message_type is not None and _has_required(field.message_type, set())
        if is_required or is_nested:
            fields.append(
                _Field(
                    name=field.name,
                    is_required=is_required,
                    is_repeated=field.is_repeated,
                    is_map=field.message_type is not None and field.message_type.GetOptions().map_entry,
                    has_presence=field.has_presence,
                    is_nested=is_nested,
                )
            )
    return tuple(fields)


def _is_required(field: FieldDescriptor) -> bool:
    return FieldBehavior.REQUIRED in field.GetOptions().Extensions[field_behavior]


def _has_required(descriptor: Descriptor, seen: set[str]) -> bool:
    """Whether any field is required in the type or below it; types of JSON values contain themselves."""
    if descriptor.full_name in seen:
        return False
    seen.add(descriptor.full_name)
    for field in descriptor.fields:
        if _is_required(field):
            return True
        if field.message_type is not None and _has_required(field.message_type, seen):
            return True
    return False
