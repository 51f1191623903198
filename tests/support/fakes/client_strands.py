"""Strands' A2A client: asks each question, and prints what its user sees."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from strands.agent.a2a_agent import A2AAgent


async def main(url: str, texts: list[str]) -> None:
    agent: Any = A2AAgent(endpoint=url)
    for text in texts:
        result = await agent.invoke_async(text)
        shown = "\n".join(block["text"] for block in result.message["content"])
        sys.stdout.write(json.dumps({"shown": shown, "mode": "streamed"}) + "\n")
    sys.stdout.flush()


asyncio.run(main(sys.argv[1], sys.argv[2:]))
