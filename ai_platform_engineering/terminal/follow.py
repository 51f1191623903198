"""`caipe follow`: a task from its beginning or a sequence number to its end; leaving does not stop it."""

import asyncio

from ai_platform_engineering.a2a.client import A2AClient, ClientConversation, create_http_client
from ai_platform_engineering.a2a.codec import SEQ_KEY, decode_snapshot
from ai_platform_engineering.core.errors import CaipeError
from ai_platform_engineering.core.transcript import fold
from ai_platform_engineering.terminal.exit_codes import INTERRUPTED
from ai_platform_engineering.terminal.run_reporter import RunReporter, ServerContext, check_server_url

_WORKING_STATES = ("submitted", "working")


def follow_task(task_id: str, *, server: ServerContext, token: str | None, after: int, as_json: bool) -> int:
    """Shows the task like `caipe ask` does; the exit code."""
    try:
        return asyncio.run(_connect_and_follow(task_id, server, token, after, RunReporter(as_json=as_json)))
    except KeyboardInterrupt:
        return INTERRUPTED


async def _connect_and_follow(
    task_id: str, server: ServerContext, token: str | None, after: int, reporter: RunReporter
) -> int:
    async with server as url:
        try:
            check_server_url(url)
            async with create_http_client(url) as http:
                return await _follow(A2AClient(url, http, token=token), task_id, after, reporter)
        except CaipeError as error:
            return reporter.report_error(error)


async def _follow(client: A2AClient, task_id: str, after: int, reporter: RunReporter) -> int:
    task = await client.call("GetTask", {"id": task_id})
    items = decode_snapshot(task)
    if not items:
        raise CaipeError(f"The task {task_id} is not one of ours: it carries no events.")
    last_seq = int(task["metadata"][SEQ_KEY])
    if after > last_seq:
        raise CaipeError(f"The task {task_id} has no event {after} yet; its last one is {last_seq}.")
    transcript = fold(item.event for item in items)
    conversation = ClientConversation(str(task["contextId"]), task_id, str(after), after)
    if transcript.state not in _WORKING_STATES and after == 0:
        for item in items:
            reporter.show_event(item.event)
        return reporter.print_result(transcript, conversation)
    # A stream ends at a pause for input; one that was answered meanwhile is passed by the next stream.
    while transcript.state in _WORKING_STATES or conversation.seq < last_seq:
        async for event in client.follow(task_id, conversation):
            reporter.show_event(event)
            if conversation.seq > last_seq:
                transcript = transcript.apply(event)
    return reporter.print_result(transcript, conversation)
