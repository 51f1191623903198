"""The tools of a knowledge base in this process: what its MCP server offers, without the way to it."""

from typing import Any

from langchain_core.tools import BaseTool
from pydantic import PrivateAttr

from ai_platform_engineering.knowledge_bases.knowledge_base import KnowledgeBase
from ai_platform_engineering.knowledge_bases.tool_schemas import TOOLS, KnowledgeTool, answer_tool_call


class InProcessTool(BaseTool):
    """One tool; its errors are sentences for the model."""

    _kb: KnowledgeBase = PrivateAttr()

    @classmethod
    def of(cls, kb: KnowledgeBase, tool: KnowledgeTool) -> "InProcessTool":
        hints = {
            "readOnlyHint": True,
            "destructiveHint": False,
            "idempotentHint": True,
            "openWorldHint": tool.open_world,
        }
        made = cls(
            name=tool.name,
            description=tool.description,
            args_schema=tool.schema,
            metadata={"server": "knowledge_base", "tool": tool.name, "annotations": hints, "knowledge": True},
        )
        made._kb = kb
        return made

    def _run(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"{self.name} is asynchronous: use ainvoke")

    async def _arun(self, *args: Any, **kwargs: Any) -> str:
        return await answer_tool_call(self._kb, self.name, kwargs)


def in_process_tools(kb: KnowledgeBase) -> list[BaseTool]:
    """`search`, `fetch_document`, `list_datasources` and `fetch_url`, as over MCP."""
    return [InProcessTool.of(kb, tool) for tool in TOOLS]
