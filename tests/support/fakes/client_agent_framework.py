"""The A2A client of Microsoft's Agent Framework: asks in one session, and prints what its user sees."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import httpx
from a2a.client import A2ACardResolver
from agent_framework_a2a import A2AAgent


async def main(url: str, texts: list[str]) -> None:
    async with httpx.AsyncClient(timeout=120, trust_env=False) as http:
        card: Any = await A2ACardResolver(http, url).get_agent_card()
        agent: Any = A2AAgent(agent_card=card, http_client=http)
        for mode in ("whole", "streamed"):
            session = agent.create_session()
            for text in texts:
                if mode == "whole":
                    response = await agent.run(text, session=session)
                else:
                    response = await agent.run(text, stream=True, session=session).get_final_response()
                sys.stdout.write(json.dumps({"shown": response.text, "mode": mode}) + "\n")
    sys.stdout.flush()


asyncio.run(main(sys.argv[1], sys.argv[2:]))
