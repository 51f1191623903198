"""The official Python client of protocol 0.3, driven through what a program does with it.

Runs only in an environment of its own with `tests/fixtures/a2a_03_requirements.txt`. Prints a line of JSON
for each scenario: the states, and the artifacts and the status text of the task as the SDK folds it.
"""

from __future__ import annotations

import asyncio
import json
import sys
import uuid
from typing import Any


def write_line(line: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


async def main(url: str) -> None:
    # Imported here: our linters read this file where another version of the SDK is installed.
    import a2a.types as wire
    import httpx
    from a2a.client import A2ACardResolver, ClientConfig, ClientFactory

    types: Any = wire
    http = httpx.AsyncClient(timeout=120, trust_env=False)
    card: Any = await A2ACardResolver(http, url).get_agent_card()
    streaming: Any = ClientFactory(ClientConfig(httpx_client=http)).create(card)
    blocking: Any = ClientFactory(ClientConfig(httpx_client=http, streaming=False)).create(card)

    def message(text: str = "", data: Any = None, task: Any = None) -> Any:
        part = types.DataPart(data=data) if data is not None else types.TextPart(text=text)
        ids = {"task_id": task.id, "context_id": task.context_id} if task else {}
        return types.Message(role="user", message_id=str(uuid.uuid4()), parts=[types.Part(root=part)], **ids)

    def texts(parts: Any) -> str:
        return "".join(getattr(part.root, "text", "") for part in parts)

    def report(name: str, task: Any, states: list[str]) -> None:
        artifacts = [{"name": one.name, "text": texts(one.parts)} for one in task.artifacts or ()]
        said = texts(task.status.message.parts) if task.status.message else ""
        line = {"scenario": name, "states": states, "artifacts": artifacts, "said": said}
        write_line(line)

    async def read(stream: Any) -> tuple[Any, list[str]]:
        states: list[str] = []
        task: Any = None
        async for task, update in stream:
            state = str(task.status.state.value)
            if update is None or hasattr(update, "status"):
                states.append(state)
        return task, states

    async def ask(name: str, client: Any, text: str, *answers: Any) -> None:
        task, states = await read(client.send_message(message(text)))
        report(name, task, states)
        for answer in answers:
            sent = message(answer, task=task) if isinstance(answer, str) else message(data=answer, task=task)
            task, states = await read(client.send_message(sent))
            report(name, task, states)

    await ask("ask", blocking, "Which version?")
    await ask("stream", streaming, "Which version?")
    await ask("form by text", streaming, "Create a repo with a form.", "repo: blog\nstars: 3")
    await ask("form by data", streaming, "Create a repo with a form.", {"repo": "blog"})
    await ask("approval by text", streaming, "Create a repo now.", "approve")

    events = streaming.send_message(message("Wait."))
    async for task, _ in events:
        if task.artifacts:
            break
    resumed = streaming.resubscribe(types.TaskIdParams(id=task.id))
    states: list[str] = []
    async for task, update in resumed:
        if not states:
            write_line({"subscribed": True})
        if update is None or hasattr(update, "status"):
            states.append(str(task.status.state.value))
    report("resubscribe", await streaming.get_task(types.TaskQueryParams(id=task.id)), states)

    events = streaming.send_message(message("Hold."))
    async for task, _ in events:
        if task.status.state.value == "working":
            break
    cancelled = await streaming.cancel_task(types.TaskIdParams(id=task.id))
    report("cancel", cancelled, [str(cancelled.status.state.value)])


async def be_notified(url: str, receiver: str) -> None:
    """Asks with a push config in the message, and sets and gets one of a task that has ended."""
    import a2a.types as wire
    import httpx
    from a2a.client import A2ACardResolver, ClientConfig, ClientFactory

    types: Any = wire
    http = httpx.AsyncClient(timeout=120, trust_env=False)
    card: Any = await A2ACardResolver(http, url).get_agent_card()
    config = types.PushNotificationConfig(url=f"{receiver}/inline", token="a-token")
    options = ClientConfig(httpx_client=http, streaming=False, push_notification_configs=[config])
    client: Any = ClientFactory(options).create(card)
    part = types.Part(root=types.TextPart(text="Which version?"))
    message = types.Message(role="user", message_id=str(uuid.uuid4()), parts=[part])
    tasks: list[Any] = [task async for task, _ in client.send_message(message)]
    task = tasks[-1]
    other = types.PushNotificationConfig(url=f"{receiver}/set", id="other", token="a-token")
    callback = types.TaskPushNotificationConfig(task_id=task.id, push_notification_config=other)
    await client.set_task_callback(callback)
    params = types.GetTaskPushNotificationConfigParams(id=task.id, push_notification_config_id="other")
    found: Any = await client.get_task_callback(params)
    write_line({"task": task.id, "found": found.push_notification_config.url})


if sys.argv[2:3] == ["--push"]:
    asyncio.run(be_notified(sys.argv[1], sys.argv[3]))
else:
    asyncio.run(main(sys.argv[1]))
