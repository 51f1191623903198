"""Tells people at the start of a run what they should know about an agent's tools."""

from typing import Any

from langchain.agents.middleware import AgentMiddleware, AgentState
from langgraph.runtime import Runtime

from ai_platform_engineering.core.signals import NoticeEmitted


class ToolNoticeMiddleware(AgentMiddleware):
    """Emits one notice when the agent starts to work."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text

    async def abefore_agent(self, state: AgentState[Any], runtime: Runtime[Any]) -> None:
        runtime.stream_writer(NoticeEmitted("info", self._text))
