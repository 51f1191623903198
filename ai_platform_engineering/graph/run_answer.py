"""The answer of a run while it is made: the supervisor's texts, a structured response, citations, tokens."""

from collections.abc import Mapping
from typing import Any

from ai_platform_engineering.core.errors import EmptyAnswer
from ai_platform_engineering.core.events import Answered, Failed, Usage
from ai_platform_engineering.core.run_budget import RunUsage
from ai_platform_engineering.graph import failures
from ai_platform_engineering.graph.citations import RetrievedSources
from ai_platform_engineering.graph.text_streams import EndedText


class RunAnswer:
    """Collects what becomes the run's last event."""

    def __init__(self, trace_id: str, sources: RetrievedSources, stored_response: Any) -> None:
        """`stored_response`: the structured answer in the graph's state, perhaps of an earlier question."""
        self._trace_id = trace_id
        self._sources = sources
        self._stored_response = stored_response
        self._response: Any = None
        self._texts: list[str] = []
        self._text = ""  # of the message that is the answer, as far as is known
        self._usage = Usage()

    def add_text(self, text: str, *, is_final: bool) -> None:
        """A message of the supervisor; a later one takes the place of an earlier answer."""
        if text:
            self._texts.append(text)
        self._text = ""
        if is_final:
            self._text = text

    def set_text(self, text: str) -> None:
        self._text = text

    def set_response(self, response: Any) -> str:
        """Takes a structured answer, and returns its text."""
        self._response = response
        self._text = self._content(response)
        return self._text

    def stored_text(self) -> str:
        return self._content(self._stored_response)

    def restore_response(self) -> None:
        """Takes the structured answer of the graph's state, if it is this question's."""
        if self._text and self.stored_text() == self._text:
            self._response = self._stored_response

    def add_usage(self, usage: Mapping[str, Any]) -> None:
        self._usage = self._usage.plus(usage)

    def set_call_counts(self, usage: RunUsage) -> None:
        """Takes the calls of the question so far, which include those before a pause."""
        counts = {"model_calls": usage.model_calls, "tool_calls": usage.tool_calls}
        self._usage = self._usage.model_copy(update=counts)

    def last_event(self, streamed: EndedText | None) -> Answered | Failed:
        """`streamed` is the supervisor's last message: the answer refers to it when it has the same text."""
        text = self._text or "\n\n".join(self._texts)
        if not text.strip():
            return self.failed_event(EmptyAnswer())
        data = None
        if self._response is not None:
            data = self._response.model_dump(mode="json")
        citations = self._sources.citations_in(text, data)
        if data is not None:
            data["content"] = text
            data["citations"] = [citation.model_dump(mode="json") for citation in citations]
        if streamed is None or streamed.text != text:
            streamed = EndedText(message_id="", slot=None, text="")
        return Answered(
            text=text,
            trace_id=self._trace_id,
            data=data,
            citations=citations,
            usage=self._usage,
            message_id=streamed.message_id or None,
            slot=streamed.slot,
        )

    def failed_event(self, error: Exception) -> Failed:
        return failures.failed_event(error, self._trace_id).model_copy(update={"usage": self._usage})

    def _content(self, response: Any) -> str:
        return self._sources.number_citations(str(getattr(response, "content", "")))
