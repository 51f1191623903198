"""The scripted investigator: plays the demo's one story when no language model is configured.

It is a chat model like any other: plans, delegates, calls the agents' real tools, and writes its answer from
what they returned. Everything else is answered by the embedded router.
"""

from collections.abc import Sequence
from typing import Any

from langchain_core.messages import BaseMessage

from ai_platform_engineering.core.tool_traits import DELEGATION_TOOL
from ai_platform_engineering.demo.investigator.agent_tasks import find_agent_script
from ai_platform_engineering.demo.investigator.supervisor_script import find_supervisor_script
from ai_platform_engineering.models.offline.bound_tools import read_bound_tools
from ai_platform_engineering.models.offline.chat_history import read_chat_history
from ai_platform_engineering.models.offline.router_reply import RouterReply
from ai_platform_engineering.models.offline_model import OfflineModel, use_answer_tool

INVESTIGATOR_NOTICE = (
    "No language model is configured. “Why is checkout failing?”, “create a ticket” and “roll back checkout”"
    " are played by a scripted investigator of the demo, which calls the real tools; other questions are"
    " answered by the embedded router, which only matches words. Set LLM_MODEL to ask anything."
)


class InvestigatorModel(OfflineModel):
    """The embedded router, with scripts for the questions of the demo's story."""

    notice: str = INVESTIGATOR_NOTICE

    def _reply(self, messages: Sequence[BaseMessage], tools: Sequence[dict[str, Any]]) -> RouterReply:
        history = read_chat_history(messages)
        bound_tools = read_bound_tools(tools, self.installation)
        script_reply = None
        if bound_tools.can_delegate or history.find_calls(DELEGATION_TOOL):
            script_reply = find_supervisor_script(history, messages, bound_tools)
        elif not history.wants_summary:
            script_reply = find_agent_script(history, bound_tools)
        if script_reply is None:
            return super()._reply(messages, tools)
        return use_answer_tool(script_reply, bound_tools)
