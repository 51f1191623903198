"""The official Python client of protocol 1.0, driven through what a program does with it.

Prints a line of JSON for each scenario: the states, and the folded artifacts and the status text of the task.
Arguments: the binding (JSONRPC or HTTP+JSON) and the address of the server; `--push` and the address of a
receiver for push notifications alone.
"""

import asyncio
import json
import sys
import uuid
from collections.abc import AsyncIterator, Iterable
from typing import Any

import httpx
from a2a.client import A2ACardResolver, Client, ClientConfig, ClientFactory
from a2a.types import (
    CancelTaskRequest,
    DeleteTaskPushNotificationConfigRequest,
    GetTaskPushNotificationConfigRequest,
    ListTaskPushNotificationConfigsRequest,
    ListTasksRequest,
    Message,
    Part,
    Role,
    SendMessageRequest,
    StreamResponse,
    SubscribeToTaskRequest,
    Task,
    TaskPushNotificationConfig,
    TaskState,
    TaskStatus,
)
from google.protobuf.json_format import ParseDict
from google.protobuf.struct_pb2 import Value


def write_line(line: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def read_text(parts: Iterable[Part]) -> str:
    return "".join(part.text for part in parts)


def name_state(status: TaskStatus) -> str:
    return TaskState.Name(status.state).removeprefix("TASK_STATE_").lower().replace("_", "-")


class Folded:
    """A task as the events of a stream say it."""

    def __init__(self) -> None:
        self.task_id = ""
        self.context_id = ""
        self.states: list[str] = []
        self.artifacts: dict[str, dict[str, str]] = {}
        self.said = ""

    def take(self, event: StreamResponse) -> None:
        if event.HasField("task"):
            self.take_task(event.task)
        elif event.HasField("status_update"):
            self._set_status(event.status_update.status)
        else:
            artifact = event.artifact_update.artifact
            text = read_text(artifact.parts)
            if event.artifact_update.append:
                text = self.artifacts[artifact.artifact_id]["text"] + text
            self.artifacts[artifact.artifact_id] = {"name": artifact.name, "text": text}

    def take_task(self, task: Task) -> None:
        self.task_id = task.id
        self.context_id = task.context_id
        for artifact in task.artifacts:
            text = read_text(artifact.parts)
            self.artifacts[artifact.artifact_id] = {"name": artifact.name, "text": text}
        self._set_status(task.status)

    def _set_status(self, status: TaskStatus) -> None:
        self.states.append(name_state(status))
        self.said = read_text(status.message.parts)

    def report(self, scenario: str) -> None:
        artifacts = [one for one in self.artifacts.values() if one["text"]]
        write_line({"scenario": scenario, "states": self.states, "artifacts": artifacts, "said": self.said})


def build_request(content: Any, task: Folded | None = None) -> SendMessageRequest:
    part = Part(text=content) if isinstance(content, str) else Part(data=ParseDict(content, Value()))
    message = Message(message_id=str(uuid.uuid4()), role=Role.ROLE_USER, parts=[part])
    if task is not None:
        message.task_id = task.task_id
        message.context_id = task.context_id
    return SendMessageRequest(message=message)


async def ask(scenario: str, client: Client, *contents: Any) -> None:
    task: Folded | None = None
    for content in contents:
        folded = Folded()
        async for event in client.send_message(build_request(content, task)):
            folded.take(event)
        folded.report(scenario)
        task = task or folded


async def follow_until(stream: AsyncIterator[StreamResponse], state: str, *, artifact: bool) -> Folded:
    """Reads a stream until the task works, or has an artifact; the connection is left."""
    folded = Folded()
    async for event in stream:
        folded.take(event)
        if folded.artifacts if artifact else folded.states[-1] == state:
            break
    return folded


async def resubscribe(client: Client) -> None:
    first = await follow_until(client.send_message(build_request("Wait.")), "working", artifact=True)
    resumed = Folded()
    async for event in client.subscribe(SubscribeToTaskRequest(id=first.task_id)):
        if not resumed.states:
            write_line({"subscribed": True})
        resumed.take(event)
    resumed.report("resubscribe")


async def cancel(client: Client) -> None:
    first = await follow_until(client.send_message(build_request("Hold.")), "working", artifact=False)
    ended = Folded()
    ended.take_task(await client.cancel_task(CancelTaskRequest(id=first.task_id)))
    ended.report("cancel")


async def list_pages(client: Client) -> None:
    pages: list[list[tuple[str, str]]] = []
    request = ListTasksRequest(page_size=3)
    while True:
        page = await client.list_tasks(request)
        pages.append([(task.id, name_state(task.status)) for task in page.tasks])
        if not page.next_page_token:
            break
        request.page_token = page.next_page_token
    write_line({"scenario": "list", "pages": pages, "total": page.total_size})


async def be_notified(client: Client, receiver: str) -> None:
    """Asks with a push config in the message, then sets, deletes, gets and lists configs of the task."""
    request = build_request("Which version?")
    inline = TaskPushNotificationConfig(url=f"{receiver}/inline", token="a-token")
    request.configuration.task_push_notification_config.CopyFrom(inline)
    folded = Folded()
    async for event in client.send_message(request):
        folded.take(event)
    task_id = folded.task_id
    for config_id, path in (("other", "/set"), ("deleted", "/deleted")):
        await client.create_task_push_notification_config(
            TaskPushNotificationConfig(
                task_id=task_id, id=config_id, url=f"{receiver}{path}", token="a-token"
            )
        )
    await client.delete_task_push_notification_config(
        DeleteTaskPushNotificationConfigRequest(task_id=task_id, id="deleted")
    )
    config = await client.get_task_push_notification_config(
        GetTaskPushNotificationConfigRequest(task_id=task_id, id="other")
    )
    page = await client.list_task_push_notification_configs(
        ListTaskPushNotificationConfigsRequest(task_id=task_id)
    )
    write_line({"task": task_id, "found": config.url, "urls": [one.url for one in page.configs]})


async def main(binding: str, url: str, option: str = "", receiver: str = "") -> None:
    async with httpx.AsyncClient(timeout=120, trust_env=False) as http:
        card = await A2ACardResolver(http, url).get_agent_card()

        def connect(*, streaming: bool) -> Client:
            config = ClientConfig(
                httpx_client=http, streaming=streaming, supported_protocol_bindings=[binding]
            )
            return ClientFactory(config).create(card)

        if option == "--push":
            await be_notified(connect(streaming=False), receiver)
            return
        client = connect(streaming=True)
        await ask("ask", connect(streaming=False), "Which version?")
        await ask("stream", client, "Which version?")
        await ask("form by text", client, "Create a repo with a form.", "repo: blog\nstars: 3")
        await ask("form by data", client, "Create a repo with a form.", {"repo": "blog"})
        await ask("approval by text", client, "Create a repo now.", "approve")
        await resubscribe(client)
        await cancel(client)
        await list_pages(client)


asyncio.run(main(*sys.argv[1:]))
