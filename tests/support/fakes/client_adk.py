"""Google ADK's remote agent in its runner: asks in one session, and prints what its user sees."""

from __future__ import annotations

import asyncio
import json
import sys

import httpx
from google.adk.agents.remote_a2a_agent import RemoteA2aAgent
from google.adk.runners import InMemoryRunner
from google.genai import types

# A program that shows every text as it comes, as `adk run` does, and one that waits for whole events. ADK
# keeps only the last chunk of an artifact as one, so the second activates our extension.
MODES = (("live", {}), ("whole", {"A2A-Extensions": "urn:caipe:events:1"}))


async def main(url: str, texts: list[str]) -> None:
    for mode, headers in MODES:
        http = httpx.AsyncClient(timeout=120, trust_env=False, headers=headers)
        card = f"{url}.well-known/agent-card.json"
        agent = RemoteA2aAgent(name="platform", agent_card=card, httpx_client=http)
        runner = InMemoryRunner(agent=agent, app_name="test")
        session = await runner.session_service.create_session(app_name="test", user_id="me")
        for text in texts:
            shown = ""
            message = types.Content(role="user", parts=[types.Part(text=text)])
            async for event in runner.run_async(user_id="me", session_id=session.id, new_message=message):
                if not event.content or (mode == "whole" and event.partial):
                    continue
                for part in event.content.parts or ():
                    if part.text and not part.thought:
                        shown += part.text
                    elif part.function_call:  # what the agent asks a person
                        shown += str((part.function_call.args or {}).get("input_required") or "")
            sys.stdout.write(json.dumps({"shown": shown, "mode": mode}) + "\n")
    sys.stdout.flush()


asyncio.run(main(sys.argv[1], sys.argv[2:]))
