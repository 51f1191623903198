"""The events of a run, joined for a snapshot: fewer of them, with the same fold."""

from collections.abc import Sequence

from ai_platform_engineering.core.events import StoredEvent, TextDelta, TextDiscarded


def join_deltas(items: Sequence[StoredEvent]) -> list[StoredEvent]:
    """Each message's deltas become one, where its first stood; a discarded message leaves an empty one."""
    texts = _texts(items)
    kept: list[StoredEvent] = []
    seen: set[tuple[str, int]] = set()
    lives: dict[str, int] = {}
    for item in items:
        event = item.event
        if isinstance(event, TextDelta):
            key = (event.message_id, lives.get(event.message_id, 0))
            if key in seen:
                continue
            seen.add(key)
            kept.append(item._replace(event=event.model_copy(update={"offset": 0, "text": texts[key]})))
            continue
        if isinstance(event, TextDiscarded):
            lives[event.message_id] = lives.get(event.message_id, 0) + 1
        kept.append(item)
    return kept


def _texts(items: Sequence[StoredEvent]) -> dict[tuple[str, int], str]:
    """The whole text of each message; the number counts how often its id was discarded before."""
    pieces: dict[tuple[str, int], list[str]] = {}
    lengths: dict[tuple[str, int], int] = {}
    lives: dict[str, int] = {}
    for item in items:
        event = item.event
        if isinstance(event, TextDelta):
            key = (event.message_id, lives.get(event.message_id, 0))
            held = pieces.setdefault(key, [])
            if event.offset < lengths.get(key, 0):
                held[:] = ["".join(held)[: event.offset]]
                lengths[key] = len(held[0])
            held.append(event.text)
            lengths[key] = lengths.get(key, 0) + len(event.text)
        elif isinstance(event, TextDiscarded):
            key = (event.message_id, lives.get(event.message_id, 0))
            if key in pieces:
                pieces[key], lengths[key] = [], 0
            lives[event.message_id] = lives.get(event.message_id, 0) + 1
    return {key: "".join(held) for key, held in pieces.items()}
