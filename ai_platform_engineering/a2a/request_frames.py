"""Requests in status frames: what waits for people as text and data, and what became of a request."""

from collections.abc import Sequence
from typing import Any

from ai_platform_engineering.a2a.frames import Content, DataContent, TextContent
from ai_platform_engineering.a2a.request_data import request_to_data
from ai_platform_engineering.core.events import Approval, InputRequested, InputResolved, Paused
from ai_platform_engineering.core.request_text import describe_requests, number_requests
from ai_platform_engineering.core.sentences import begin_sentence


def pause_text(event: Paused, requests: Sequence[InputRequested], *, text_decisions: bool) -> str:
    """Why the run waits, what is asked, and how to answer. `requests`: all of the run, in order."""
    pending: dict[int, InputRequested] = {}
    for number, request in number_requests(requests).items():
        if request.request_id in event.requests:
            pending[number] = request
    explanation = describe_requests(pending, takes_decisions=text_decisions)
    return "\n\n".join(filter(None, (event.text, explanation)))


def pending_data(event: Paused, requests: Sequence[InputRequested]) -> list[Content]:
    """The data of each request that waits."""
    return [
        DataContent(request_to_data(request)) for request in requests if request.request_id in event.requests
    ]


def resolution_data(event: InputResolved, requests: Sequence[InputRequested]) -> dict[str, Any]:
    """What became of a request. Without the marks of an open one, so no client lists it again."""
    data: dict[str, Any] = {"request_id": event.request_id, "resolution": event.resolution}
    if event.by:
        data["by"] = event.by
    request = find_request(event, requests)
    if request is None:
        return data
    if isinstance(request.asked, Approval):
        data["tool"] = request.asked.tool
    elif request.asked.title:
        data["input_title"] = request.asked.title
    return data


def resolution_parts(event: InputResolved, requests: Sequence[InputRequested]) -> tuple[Content, ...]:
    """What became of a request, as a sentence and as data."""
    request = find_request(event, requests)
    subject = "The request" if request is None else begin_sentence(request.asked.describe())
    by = f" by {event.by}" if event.by else ""
    return (
        TextContent(f"{subject}: {event.resolution}{by}."),
        DataContent(resolution_data(event, requests)),
    )


def find_request(event: InputResolved, requests: Sequence[InputRequested]) -> InputRequested | None:
    for request in requests:
        if request.request_id == event.request_id:
            return request
    return None
