"""`caipe follow`: a task from its beginning or a sequence number to its end; leaving does not stop it."""

import asyncio
import time

from ai_platform_engineering.a2a.client import A2AClient, ClientConversation, create_http_client
from ai_platform_engineering.a2a.codec import SEQ_KEY, decode_snapshot
from ai_platform_engineering.core.errors import CaipeError
from ai_platform_engineering.core.transcript import fold
from ai_platform_engineering.terminal.exit_codes import INTERRUPTED
from ai_platform_engineering.terminal.run_ids import find_task_id
from ai_platform_engineering.terminal.run_reporter import RunReporter, ServerContext, check_server_url

_WORKING_STATES = ("submitted", "working")


def follow_task(
    task_id: str,
    *,
    reporter: RunReporter,
    server: ServerContext,
    token: str | None,
    after: int,
    reconnect_seconds: float,
) -> int:
    """Shows the task like `caipe ask` does; the exit code."""
    reporter.set_hint("Ctrl-C leaves it running")
    with reporter:
        try:
            return asyncio.run(_Follower(task_id, reporter).run(server, token, after, reconnect_seconds))
        except KeyboardInterrupt:
            return INTERRUPTED


class _Follower:
    """A task that is followed, and where what it does is shown."""

    def __init__(self, task_id: str, reporter: RunReporter) -> None:
        self._task_id = task_id
        self._reporter = reporter
        self._conversation = ClientConversation()

    async def run(
        self, server: ServerContext, token: str | None, after: int, reconnect_seconds: float
    ) -> int:
        """Follows the task on the server; the exit code."""
        async with server as url:
            try:
                check_server_url(url)
                async with create_http_client(url) as http:
                    client = A2AClient(url, http, token=token, reconnect_seconds=reconnect_seconds)
                    return await self._follow(client, after)
            except CaipeError as error:
                return self._reporter.report_error(error, self._conversation)

    async def _follow(self, client: A2AClient, after: int) -> int:
        task_id = await find_task_id(client, self._task_id)
        task = await client.call("GetTask", {"id": task_id})
        items = decode_snapshot(task)
        if not items:
            raise CaipeError(f"The task {task_id} has no events: it does not belong to this program.")
        last_seq = int(task["metadata"][SEQ_KEY])
        if after > last_seq:
            raise CaipeError(f"The task {task_id} has no event {after} yet; its last one is {last_seq}.")
        transcript = fold(item.event for item in items)
        conversation = self._conversation = ClientConversation(
            str(task["contextId"]), task_id, str(after), after, on_retry=self._reporter.show_retry
        )
        if transcript.state not in _WORKING_STATES and after == 0:
            for item in items:
                conversation.seq = item.seq
                self._reporter.show_event(item.event, conversation, item.stored_at.timestamp())
            return self._reporter.print_result(transcript, conversation)
        for item in items:
            if item.seq <= after:
                self._reporter.apply_silently(item.event)
        # A stream ends at a pause for input; one that was answered meanwhile is passed by the next stream.
        while transcript.state in _WORKING_STATES or conversation.seq < last_seq:
            async for event in client.follow(task_id, conversation):
                is_new = conversation.seq > last_seq
                self._reporter.show_event(event, conversation, time.monotonic() if is_new else None)
                if is_new:
                    transcript = transcript.apply(event)
        return self._reporter.print_result(transcript, conversation)
