"""Server-sent events of a streaming HTTP response, read by clients."""

from collections.abc import AsyncIterator

import httpx


async def read_sse_frames(response: httpx.Response) -> AsyncIterator[tuple[str | None, str]]:
    """Yields the event id (the last one that was sent) and the data of each server-sent event."""
    event_id: str | None = None
    data_lines: list[str] = []
    async for line in response.aiter_lines():
        if line.startswith("id:"):
            event_id = line[3:].strip()
        elif line.startswith("data:"):
            data_lines.append(line[5:].lstrip())
        elif not line and data_lines:
            yield event_id, "\n".join(data_lines)
            data_lines = []
