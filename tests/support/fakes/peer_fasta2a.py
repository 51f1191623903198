"""An agent made with Pydantic AI, behind FastA2A; runs in an environment of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import peer_stage
from fasta2a.pydantic_ai import agent_to_a2a
from peer_stage import PeerStage, serve_peer
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel

MODES = ("default", "whole")


def _find_question(messages: list[ModelMessage]) -> str:
    texts = [
        part.content for message in messages for part in message.parts if isinstance(part, UserPromptPart)
    ]
    return str(texts[-1])


def build(url: str, stage: PeerStage, mode: str) -> Any:
    async def answer(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        parts: list[Any] = []
        text = ""
        async for piece in stage.speak(_find_question(messages)):
            if isinstance(piece, str):
                text += piece
            else:
                parts.append(ToolCallPart("lookup", piece))
        if text:
            parts.insert(0, TextPart(text))
        return ModelResponse(parts=parts)

    async def stream(messages: list[ModelMessage], _: AgentInfo) -> AsyncIterator[Any]:
        async for piece in stage.speak(_find_question(messages)):
            if isinstance(piece, str):
                yield piece
            else:
                yield {1: DeltaToolCall("lookup", f'{{"app": "{piece["app"]}"}}')}

    model = FunctionModel(answer) if mode == "whole" else FunctionModel(stream_function=stream)
    agent = Agent(model, name="fasta2a peer", tools=[peer_stage.lookup])
    return agent_to_a2a(agent, url=url)


if __name__ == "__main__":
    serve_peer(build, MODES)
