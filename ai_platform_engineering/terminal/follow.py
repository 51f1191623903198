"""`caipe follow`: a task that somebody started, from its beginning or after a number, to its end. Leaving stops nothing."""

import asyncio

from ai_platform_engineering.a2a.client import A2AClient, Conversation, http_for
from ai_platform_engineering.a2a.codec import SEQ_KEY, decode_task
from ai_platform_engineering.core.errors import CaipeError
from ai_platform_engineering.core.transcript import fold
from ai_platform_engineering.terminal.progress import INTERRUPTED, Report, Server, check_address

_WORKING = ("submitted", "working")


def follow_task(task_id: str, *, server: Server, token: str | None, after: int, as_json: bool) -> int:
    """Shows the task like `caipe ask` does; the exit code."""
    try:
        return asyncio.run(_follow(task_id, server, token, after, Report(as_json=as_json)))
    except KeyboardInterrupt:
        return INTERRUPTED


async def _follow(task_id: str, server: Server, token: str | None, after: int, report: Report) -> int:
    async with server as url:
        try:
            check_address(url)
            async with http_for(url) as http:
                return await _shown(A2AClient(url, http, token=token), task_id, after, report)
        except CaipeError as error:
            return report.refuse(error)


async def _shown(client: A2AClient, task_id: str, after: int, report: Report) -> int:
    task = await client.call("GetTask", {"id": task_id})
    items = decode_task(task)
    if not items:
        raise CaipeError(f"The task {task_id} is not one of ours: it carries no events.")
    last = int(task["metadata"][SEQ_KEY])
    if after > last:
        raise CaipeError(f"The task {task_id} has no event {after} yet; its last one is {last}.")
    view, talk = fold(item.event for item in items), Conversation(str(task["contextId"]), task_id, str(after), after)
    if view.state not in _WORKING and after == 0:
        for item in items:
            report.show(item.event)
        return report.finish(view, talk)
    while view.state in _WORKING or talk.seq < last:  # each round goes up to a pause; those that were answered are passed
        async for event in client.follow(task_id, talk):
            report.show(event)
            if talk.seq > last:
                view = view.apply(event)
    return report.finish(view, talk)
