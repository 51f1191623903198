"""The data of an answer: its structure, and the sources that it cites."""

from ai_platform_engineering.a2a.frames import Content, DataContent
from ai_platform_engineering.core.events import Answered


def answer_data(event: Answered) -> tuple[Content, ...]:
    """The data part of an answer; none when it is text alone."""
    citations = [citation.model_dump(exclude_none=True) for citation in event.citations]
    if not citations:
        if event.data is None:
            return ()
        return (DataContent(event.data),)
    if isinstance(event.data, dict):
        return (DataContent({**event.data, "citations": citations}),)
    return (DataContent({"citations": citations}),)
