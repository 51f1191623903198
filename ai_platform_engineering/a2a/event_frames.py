"""Events as A2A frames, and a run as a task, in the shape that the client gets."""

from collections.abc import Callable, Sequence

from ai_platform_engineering.a2a import plain_shape, rich_shape
from ai_platform_engineering.a2a.client_shape import ClientShape
from ai_platform_engineering.a2a.codec import TaskRef
from ai_platform_engineering.a2a.frame_protobuf import Frame, to_protobuf
from ai_platform_engineering.a2a.frames import PlainFrame
from ai_platform_engineering.core.events import AnyEvent, InputRequested, InputResolved, Paused, StoredEvent

RICH = ClientShape()

_BUILDERS: dict[str, Callable[..., list[PlainFrame]]] = {
    "rich": rich_shape.build_frames,
    "plain": plain_shape.build_frames,
}


def encode(
    ref: TaskRef, item: StoredEvent, shape: ClientShape = RICH, requests: Sequence[InputRequested] = ()
) -> list[Frame]:
    """The frames of an event as messages of the SDK."""
    return [to_protobuf(frame) for frame in build_frames(ref, item, shape, requests)]


def build_frames(
    ref: TaskRef, item: StoredEvent, shape: ClientShape = RICH, requests: Sequence[InputRequested] = ()
) -> list[PlainFrame]:
    """The frames of an event; `requests` are all of the run, in order, for an event that needs them."""
    return _BUILDERS[shape.name](ref, item, requests, text_decisions=shape.text_decisions)


def needs_requests(event: AnyEvent) -> bool:
    """Whether the frames of the event say what the run's requests ask."""
    return isinstance(event, Paused | InputResolved)
