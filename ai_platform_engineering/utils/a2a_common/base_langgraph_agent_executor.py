"""BaseLangGraphAgentExecutor: a stream of numbered events as an A2A task under the SDK's request handler."""

from a2a.server.agent_execution import AgentExecutor

from ai_platform_engineering.utils.a2a_common.event_executor import EventExecutor


class BaseLangGraphAgentExecutor(EventExecutor, AgentExecutor):
    """An SDK executor for programs that embed an agent: puts the events of `open` on the SDK's queue."""
