"""Finds runs and conversations by the beginning of an id, or by a trace id."""

import re
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from ai_platform_engineering.a2a.client import A2AClient, RequestRefused
from ai_platform_engineering.a2a.rest_client import rest_api_for_client
from ai_platform_engineering.core.errors import CaipeError

# Ids that a server makes are UUIDs; an id that a person chose is never completed to another one.
_UUID_PREFIX = re.compile(r"[0-9a-f]{4,8}(?:-[0-9a-f]{0,4}){0,3}(?:-[0-9a-f]{0,12})?")
_TRACE_PREFIX = re.compile(r"[0-9a-f]{9,32}")
_UUID_GROUPS = (8, 12, 16, 20)
_UUID_LENGTH = 36


async def find_task_id(client: A2AClient, text: str) -> str:
    """The id of the task that the text names: its id, the beginning of it, or its trace id.

    Raises CaipeError when several tasks begin so. A text that begins no id is returned as it is.
    """
    prefix = _to_uuid_prefix(text)
    if prefix is None or len(prefix) == _UUID_LENGTH:
        return prefix or text
    matches = await _find(client, "tasks", prefix)
    return _choose(text, [str(match["task_id"]) for match in matches], "tasks")


async def find_context_id(client: A2AClient, text: str) -> str:
    """The id of the conversation that the text names: its id, the beginning of it, or a run's trace id.

    Raises CaipeError when several begin so. Another text is the id of a conversation that may be new.
    """
    prefix = _to_uuid_prefix(text)
    if prefix is None:
        return text
    contexts = [str(match["context_id"]) for match in await _find(client, "conversations", prefix)]
    if contexts:
        return _choose(text, contexts, "conversations")
    runs = await _find(client, "tasks", prefix)
    if runs:
        return _choose(text, list(dict.fromkeys(str(run["context_id"]) for run in runs)), "conversations")
    return text


def _to_uuid_prefix(text: str) -> str | None:
    """The beginning of a UUID that the text is, with its hyphens; None for another text."""
    lowered = text.strip().lower()
    if _UUID_PREFIX.fullmatch(lowered):
        return lowered
    if not _TRACE_PREFIX.fullmatch(lowered):
        return None
    groups: list[str] = []
    start = 0
    for end in (*_UUID_GROUPS, len(lowered)):
        if lowered[start:end]:
            groups.append(lowered[start:end])
        start = end
    return "-".join(groups)


async def _find(client: A2AClient, kind: str, prefix: str) -> Sequence[dict[str, Any]]:
    """The runs or conversations whose id begins so; none of a server that has no such search."""
    try:
        response = await rest_api_for_client(client)("GET", f"/v1/ids/{kind}?prefix={quote(prefix)}")
    except RequestRefused:
        return ()
    return list(response[kind])


def _choose(text: str, ids: Sequence[str], kind: str) -> str:
    if len(ids) > 1:
        raise CaipeError(f"Several {kind} begin with {text}: {', '.join(ids)}. Type more of the id.")
    return ids[0] if ids else text
