"""An agent made with Strands, behind its own A2A server; runs in an environment of its own."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from typing import Any

import peer_stage
from a2a.types import AgentCapabilities
from peer_stage import PeerStage, serve_peer
from strands import Agent, tool
from strands.models.model import Model
from strands.multiagent.a2a import A2AServer

MODES = ("default", "compliant", "no-stream")


class ScriptedModel(Model):
    def __init__(self, stage: PeerStage) -> None:
        self._stage = stage

    def update_config(self, **_: Any) -> None: ...

    def get_config(self) -> dict[str, Any]:
        return {}

    def structured_output(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError

    async def stream(self, messages: Any, *_: Any, **__: Any) -> AsyncIterator[dict[str, Any]]:
        reason = "end_turn"
        yield {"messageStart": {"role": "assistant"}}
        yield {"contentBlockStart": {"start": {}}}
        async for piece in self._stage.speak(_find_question(messages)):
            if isinstance(piece, str):
                yield {"contentBlockDelta": {"delta": {"text": piece}}}
                continue
            reason = "tool_use"
            yield {"contentBlockStop": {}}
            yield {
                "contentBlockStart": {
                    "start": {"toolUse": {"name": "lookup", "toolUseId": str(uuid.uuid4())}}
                }
            }
            yield {"contentBlockDelta": {"delta": {"toolUse": {"input": f'{{"app": "{piece["app"]}"}}'}}}}
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": reason}}


def _find_question(messages: Any) -> str:
    texts = [
        block["text"]
        for message in messages
        if message["role"] == "user"
        for block in message["content"]
        if "text" in block
    ]
    return str(texts[-1])


def build(url: str, stage: PeerStage, mode: str) -> Any:
    lookup = tool(peer_stage.lookup)

    def create_agent(_: str) -> Agent:
        return Agent(
            name="strands peer",
            description="Plays turns.",
            model=ScriptedModel(stage),
            tools=[lookup],
            callback_handler=None,
        )

    server = A2AServer(
        agent_factory=create_agent, http_url=url, enable_a2a_compliant_streaming=mode == "compliant"
    )
    if mode == "no-stream":
        server.capabilities = AgentCapabilities(streaming=False)
    return server.to_starlette_app()


if __name__ == "__main__":
    serve_peer(build, MODES)
