"""`caipe follow`: a task that somebody started, from its beginning or after a number, to its end. Leaving stops nothing."""

import asyncio

from ai_platform_engineering.a2a.client import A2AClient, ClientConversation, create_http_client
from ai_platform_engineering.a2a.codec import SEQ_KEY, decode_snapshot
from ai_platform_engineering.core.errors import CaipeError
from ai_platform_engineering.core.transcript import fold
from ai_platform_engineering.terminal.run_reporter import (
    INTERRUPTED,
    RunReporter,
    ServerContext,
    check_server_url,
)

_WORKING = ("submitted", "working")


def follow_task(task_id: str, *, server: ServerContext, token: str | None, after: int, as_json: bool) -> int:
    """Shows the task like `caipe ask` does; the exit code."""
    try:
        return asyncio.run(_follow(task_id, server, token, after, RunReporter(as_json=as_json)))
    except KeyboardInterrupt:
        return INTERRUPTED


async def _follow(
    task_id: str, server: ServerContext, token: str | None, after: int, report: RunReporter
) -> int:
    async with server as url:
        try:
            check_server_url(url)
            async with create_http_client(url) as http:
                return await _shown(A2AClient(url, http, token=token), task_id, after, report)
        except CaipeError as error:
            return report.report_error(error)


async def _shown(client: A2AClient, task_id: str, after: int, report: RunReporter) -> int:
    task = await client.call("GetTask", {"id": task_id})
    items = decode_snapshot(task)
    if not items:
        raise CaipeError(f"The task {task_id} is not one of ours: it carries no events.")
    last = int(task["metadata"][SEQ_KEY])
    if after > last:
        raise CaipeError(f"The task {task_id} has no event {after} yet; its last one is {last}.")
    view, talk = (
        fold(item.event for item in items),
        ClientConversation(str(task["contextId"]), task_id, str(after), after),
    )
    if view.state not in _WORKING and after == 0:
        for item in items:
            report.show_event(item.event)
        return report.print_result(view, talk)
    while (
        view.state in _WORKING or talk.seq < last
    ):  # each round goes up to a pause; those that were answered are passed
        async for event in client.follow(task_id, talk):
            report.show_event(event)
            if talk.seq > last:
                view = view.apply(event)
    return report.print_result(view, talk)
