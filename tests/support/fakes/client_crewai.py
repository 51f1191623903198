"""CrewAI's A2A delegation, streaming and polling: asks in one conversation, and prints what its user sees."""

from __future__ import annotations

import asyncio
import json
import sys
import uuid
from typing import Any

from crewai.a2a.updates import PollingConfig, StreamingConfig
from crewai.a2a.utils.delegation import aexecute_a2a_delegation


async def main(url: str, texts: list[str]) -> None:
    card_url = f"{url}.well-known/agent-card.json"
    modes = (("streamed", StreamingConfig()), ("polled", PollingConfig(interval=0.05)))
    for mode, updates in modes:
        context_id = str(uuid.uuid4())
        task_id: str | None = None
        for text in texts:
            result: Any = await aexecute_a2a_delegation(
                endpoint=card_url,
                auth=None,
                timeout=120,
                task_description=text,
                context_id=context_id,
                task_id=task_id,
                updates=updates,
            )
            task_id = None
            if str(result["status"].value) == "input-required":
                task_id = result["history"][-1].task_id
            shown = result.get("result") or result.get("error")
            sys.stdout.write(json.dumps({"shown": shown, "mode": mode}) + "\n")
    sys.stdout.flush()


asyncio.run(main(sys.argv[1], sys.argv[2:]))
