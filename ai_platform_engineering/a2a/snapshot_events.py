"""Events of a run with joined text deltas, for a snapshot: fewer events, with the same fold."""

from collections.abc import Sequence

from ai_platform_engineering.core.events import StoredEvent, TextDelta, TextDiscarded

MessageKey = tuple[str, int]  # message id, and how often it was discarded before


def join_deltas(items: Sequence[StoredEvent]) -> list[StoredEvent]:
    """Joins each message's deltas into one, at the place of the first; a discarded message becomes empty."""
    texts = _join_texts(items)
    joined: list[StoredEvent] = []
    emitted: set[MessageKey] = set()
    discards: dict[str, int] = {}
    for item in items:
        event = item.event
        if isinstance(event, TextDelta):
            key = (event.message_id, discards.get(event.message_id, 0))
            if key in emitted:
                continue
            emitted.add(key)
            joined_delta = event.model_copy(update={"offset": 0, "text": texts[key]})
            joined.append(item._replace(event=joined_delta))
            continue
        if isinstance(event, TextDiscarded):
            discards[event.message_id] = discards.get(event.message_id, 0) + 1
        joined.append(item)
    return joined


def _join_texts(items: Sequence[StoredEvent]) -> dict[MessageKey, str]:
    """The text of each message after all its deltas."""
    pieces: dict[MessageKey, list[str]] = {}
    lengths: dict[MessageKey, int] = {}
    discards: dict[str, int] = {}
    for item in items:
        event = item.event
        if isinstance(event, TextDelta):
            key = (event.message_id, discards.get(event.message_id, 0))
            message_pieces = pieces.setdefault(key, [])
            if event.offset < lengths.get(key, 0):
                message_pieces[:] = ["".join(message_pieces)[: event.offset]]
                lengths[key] = len(message_pieces[0])
            message_pieces.append(event.text)
            lengths[key] = lengths.get(key, 0) + len(event.text)
        elif isinstance(event, TextDiscarded):
            key = (event.message_id, discards.get(event.message_id, 0))
            if key in pieces:
                pieces[key] = []
                lengths[key] = 0
            discards[event.message_id] = discards.get(event.message_id, 0) + 1
    return {key: "".join(message_pieces) for key, message_pieces in pieces.items()}
