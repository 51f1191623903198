"""An agent made with Google's Agent Development Kit, behind its own A2A server; runs in an environment of its
own."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import peer_stage
from a2a.types import AgentCapabilities, AgentCard, AgentInterface
from google.adk.a2a.converters.request_converter import convert_a2a_request_to_agent_run_request
from google.adk.a2a.executor.a2a_agent_executor import A2aAgentExecutor
from google.adk.a2a.executor.config import A2aAgentExecutorConfig
from google.adk.a2a.utils.agent_to_a2a import to_a2a
from google.adk.agents import LlmAgent
from google.adk.agents.run_config import StreamingMode
from google.adk.models import BaseLlm, LlmRequest, LlmResponse
from google.genai import types
from peer_stage import PeerStage, serve_peer

# Which of its two executors, whether the model streams, and the version of the protocol.
MODES = ("default", "sse", "new", "new-sse", "sse-0.3", "no-stream")


class ScriptedModel(BaseLlm):
    model: str = "scripted"
    stage: Any

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        parts: list[types.Part] = []
        text = ""
        async for piece in self.stage.speak(_find_question(llm_request)):
            if isinstance(piece, str):
                text += piece
                if stream:
                    content = types.Content(role="model", parts=[types.Part(text=piece)])
                    yield LlmResponse(content=content, partial=True)
            else:
                parts.append(types.Part.from_function_call(name="lookup", args=piece))
        if text:
            parts.insert(0, types.Part(text=text))
        yield LlmResponse(content=types.Content(role="model", parts=parts))


def _find_question(request: LlmRequest) -> str:
    texts = [
        part.text
        for content in request.contents
        if content.role == "user"
        for part in content.parts
        if part.text
    ]
    return str(texts[-1])


def build(url: str, stage: PeerStage, mode: str) -> Any:
    def convert_request(request: Any, convert_part: Any) -> Any:
        run_request = convert_a2a_request_to_agent_run_request(request, convert_part)
        if "sse" in mode:
            run_request.run_config.streaming_mode = StreamingMode.SSE
        return run_request

    def create_executor(runner: Any) -> A2aAgentExecutor:
        config = A2aAgentExecutorConfig(request_converter=convert_request)
        return A2aAgentExecutor(runner=runner, config=config, force_new_version=mode.startswith("new"))

    agent = LlmAgent(name="adk_peer", model=ScriptedModel(stage=stage), tools=[peer_stage.lookup])
    card = AgentCard(
        name="adk_peer",
        description="Plays turns.",
        version="1.0.0",
        supported_interfaces=[
            AgentInterface(
                url=url, protocol_binding="JSONRPC", protocol_version="0.3" if mode == "sse-0.3" else "1.0"
            )
        ],
        capabilities=AgentCapabilities(streaming=mode != "no-stream"),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
    )
    return to_a2a(agent, agent_card=card, agent_executor_factory=create_executor)


if __name__ == "__main__":
    serve_peer(build, MODES)
