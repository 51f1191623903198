"""The tools of a knowledge base in this process: those of its MCP server, called directly."""

from typing import Any

from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool
from pydantic import PrivateAttr

from ai_platform_engineering.core.run_context import RunContext
from ai_platform_engineering.core.tool_traits import ToolTraits
from ai_platform_engineering.knowledge_bases.knowledge_base import KnowledgeBase
from ai_platform_engineering.knowledge_bases.tool_schemas import TOOLS, KnowledgeTool, answer_tool_call


class InProcessKnowledgeTool(BaseTool):
    """A tool of the knowledge base; its errors are texts for the model."""

    _kb: KnowledgeBase = PrivateAttr()

    @classmethod
    def of(cls, kb: KnowledgeBase, tool: KnowledgeTool) -> "InProcessKnowledgeTool":
        hints = {
            "readOnlyHint": True,
            "destructiveHint": False,
            "idempotentHint": True,
            "openWorldHint": tool.open_world,
        }
        traits = ToolTraits(annotations=hints, is_knowledge=True)
        wrapper = cls(
            name=tool.name,
            description=tool.description,
            args_schema=tool.schema,
            metadata={"server": "knowledge_base", "tool": tool.name, **traits.to_metadata()},
        )
        wrapper._kb = kb
        return wrapper

    def _run(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"{self.name} is asynchronous: use ainvoke")

    async def _arun(self, *args: Any, config: RunnableConfig, **kwargs: Any) -> str:
        principal = RunContext.from_config(config).principal
        return await answer_tool_call(self._kb, self.name, kwargs, principal)


def in_process_tools(kb: KnowledgeBase) -> list[BaseTool]:
    """`search`, `fetch_document`, `list_datasources` and `fetch_url`, as over MCP."""
    return [InProcessKnowledgeTool.of(kb, tool) for tool in TOOLS]
