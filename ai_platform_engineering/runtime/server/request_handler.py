"""The A2A request handler: every method of the protocol over the run log.

Opening a stream checks everything, so that following it has nothing left to refuse."""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace

from a2a.server.context import ServerCallContext
from a2a.types import (
    AgentCard,
    CancelTaskRequest,
    DeleteTaskPushNotificationConfigRequest,
    GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest,
    GetTaskRequest,
    ListTaskPushNotificationConfigsRequest,
    ListTaskPushNotificationConfigsResponse,
    ListTasksRequest,
    ListTasksResponse,
    Message,
    SendMessageRequest,
    SubscribeToTaskRequest,
    Task,
    TaskPushNotificationConfig,
)
from a2a.utils.errors import (
    ContentTypeNotSupportedError,
    ExtendedAgentCardNotConfiguredError,
    InvalidParamsError,
    PushNotificationNotSupportedError,
    TaskNotCancelableError,
    TaskNotFoundError,
    UnsupportedOperationError,
)
from a2a.utils.task import (
    apply_history_length,
    validate_history_length,
    validate_page_size,
)

from ai_platform_engineering.a2a.client_shape import ClientShape
from ai_platform_engineering.a2a.snapshots import encode_snapshot
from ai_platform_engineering.core.errors import Refused, RunNotFound, UnsupportedPart, WrongState
from ai_platform_engineering.runtime.log.log_rows import RunPage, RunRow
from ai_platform_engineering.runtime.log.push_store import PushTarget
from ai_platform_engineering.runtime.push.push_configs import PushConfigs
from ai_platform_engineering.runtime.runs.event_encoding import encode_aside
from ai_platform_engineering.runtime.runs.incoming_message import IncomingMessage, read_message
from ai_platform_engineering.runtime.runs.runs import Runs
from ai_platform_engineering.runtime.server.call_context import (
    headers_of_call,
    is_v03_call,
    owner_of_call,
    shape_of_call,
)
from ai_platform_engineering.runtime.server.required_fields import check_required_fields
from ai_platform_engineering.runtime.server.sse_stream import OpenStreams, StreamStart, parse_cursor
from ai_platform_engineering.runtime.server.task_list import (
    build_task_page,
    read_filter,
    read_page_size,
    read_position,
)

_NOT_FOUND = "Task not found."  # what clients look for in the message


class LogRequestHandler:
    """Starts runs and answers requests from the run log; its methods have the names of the SDK's handler."""

    def __init__(
        self,
        runs: Runs,
        *,
        max_file_bytes: int,
        streams: OpenStreams | None = None,
        extended_card: Callable[[], AgentCard] | None = None,
        push: PushConfigs | None = None,
    ) -> None:
        """`extended_card`: the card for callers with a key, where others get less.

        `push`: the configs of push notifications, where those are sent."""
        self._runs = runs
        self._extended_card = extended_card
        self._max_file_bytes = max_file_bytes
        self._streams = streams
        self._push = push

    # --- opening of streams ---------------------------------------------------------------------------------

    async def open_message(self, params: SendMessageRequest, context: ServerCallContext) -> StreamStart:
        """Starts, continues or finds the run of a message; the caller follows it."""
        check_required_fields(params)
        validate_history_length(params.configuration)
        target: PushTarget | None = None
        if params.configuration.HasField("task_push_notification_config"):
            # Before anything is started: a receiver that is refused refuses the message.
            target = await self._read_target(params.configuration.task_push_notification_config, context)
            if params.message.task_id:
                continued_run = await self._find_run(params.message.task_id, context)
                await self._find_push().check_room(continued_run, target)
        try:
            message = replace(self._read_message(params.message, context), push=target)
            row, last_seq = await self._runs.accept(message)
        except UnsupportedPart as error:
            raise ContentTypeNotSupportedError(message=str(error)) from None
        except RunNotFound as error:
            raise TaskNotFoundError(message=f"{_NOT_FOUND} {error}") from None
        except WrongState as error:
            raise UnsupportedOperationError(message=str(error)) from None
        except Refused as error:
            raise InvalidParamsError(message=str(error)) from None
        if target is not None:
            await self._store_target(row, target, notify_after=last_seq)
        shape = shape_of_call(context)
        cursor = self._read_cursor(row, context)
        if cursor:
            return StreamStart(row, *cursor, shape=shape)
        return StreamStart(row, last_seq, snapshot=last_seq > 0, shape=shape)

    async def open_subscription(
        self, params: SubscribeToTaskRequest, context: ServerCallContext
    ) -> StreamStart:
        """Finds the run of a task; the caller follows it."""
        check_required_fields(params)
        row = await self._find_run(params.id, context)
        cursor = self._read_cursor(row, context)
        if row.status == "ended" and (cursor is None or cursor == (row.last_seq, 0)):
            raise UnsupportedOperationError(message="The task has ended; use tasks/get.")
        shape = shape_of_call(context)
        if cursor:
            return StreamStart(row, *cursor, shape=shape)
        return StreamStart(row, row.last_seq, snapshot=True, shape=shape)

    # --- methods of the protocol ----------------------------------------------------------------------------

    async def on_message_send(self, params: SendMessageRequest, context: ServerCallContext) -> Task:
        start = await self.open_message(params, context)
        if not params.configuration.return_immediately:
            # A server that stops does not wait for the answer: the client gets the task as it is then.
            with self._streams.track() if self._streams else contextlib.nullcontext():
                async for _ in self._runs.follow(start.row.run_id, start.after):
                    pass
        return apply_history_length(await self._read_task(start.row, start.shape), params.configuration)

    async def on_get_task(self, params: GetTaskRequest, context: ServerCallContext) -> Task:
        check_required_fields(params)
        validate_history_length(params)
        row = await self._find_run(params.id, context)
        self._runs.followers.touch(row.run_id)
        return apply_history_length(await self._read_task(row, shape_of_call(context)), params)

    async def on_cancel_task(self, params: CancelTaskRequest, context: ServerCallContext) -> Task:
        check_required_fields(params)
        row = await self._find_run(params.id, context)
        if not await self._runs.cancel(row.run_id, by=context.user.user_name):
            raise TaskNotCancelableError(message="The task has ended.")
        return await self._read_task(row, shape_of_call(context))

    async def on_list_tasks(self, params: ListTasksRequest, context: ServerCallContext) -> ListTasksResponse:
        check_required_fields(params)
        validate_history_length(params)
        if params.HasField("page_size"):
            validate_page_size(params.page_size)
        run_filter = read_filter(params, owner_of_call(context))
        position = read_position(params)
        if run_filter is None:
            return build_task_page(params, RunPage([], 0, has_more=False), [])
        page = await self._runs.list_runs(run_filter, after=position, limit=read_page_size(params))
        shape = shape_of_call(context)
        if params.include_artifacts:
            tasks = [await self._read_listed_task(row, shape) for row in page.rows]
            return await asyncio.to_thread(build_task_page, params, page, tasks)
        return build_task_page(params, page, await self._read_outlines(page.rows, shape))

    async def on_get_extended_agent_card(
        self, params: GetExtendedAgentCardRequest, context: ServerCallContext
    ) -> AgentCard:
        if self._extended_card is None:
            raise ExtendedAgentCardNotConfiguredError()
        return self._extended_card()

    async def on_create_task_push_notification_config(
        self, params: TaskPushNotificationConfig, context: ServerCallContext
    ) -> TaskPushNotificationConfig:
        self._find_push()
        check_required_fields(params)
        row = await self._find_run(params.task_id, context)
        return await self._store_target(row, await self._read_target(params, context))

    async def on_get_task_push_notification_config(
        self, params: GetTaskPushNotificationConfigRequest, context: ServerCallContext
    ) -> TaskPushNotificationConfig:
        push = self._find_push()
        if not is_v03_call(context):
            check_required_fields(params)
        row = await self._find_run(params.task_id, context)
        return await push.find(row, params.id)

    async def on_list_task_push_notification_configs(
        self, params: ListTaskPushNotificationConfigsRequest, context: ServerCallContext
    ) -> ListTaskPushNotificationConfigsResponse:
        push = self._find_push()
        check_required_fields(params)
        return await push.list(await self._find_run(params.task_id, context), params)

    async def on_delete_task_push_notification_config(
        self, params: DeleteTaskPushNotificationConfigRequest, context: ServerCallContext
    ) -> None:
        push = self._find_push()
        check_required_fields(params)
        await push.delete(await self._find_run(params.task_id, context), params.id)

    # --- helpers --------------------------------------------------------------------------------------------

    def _read_message(self, message: Message, context: ServerCallContext) -> IncomingMessage:
        return read_message(
            message,
            owner=owner_of_call(context),
            principal=context.user.user_name,
            max_file_bytes=self._max_file_bytes,
            text_decisions=shape_of_call(context).text_decisions,
        )

    async def _find_run(self, task_id: str, context: ServerCallContext) -> RunRow:
        try:
            return await self._runs.get(task_id, owner_of_call(context))
        except RunNotFound as error:
            raise TaskNotFoundError(message=f"{_NOT_FOUND} {error}") from None

    def _find_push(self) -> PushConfigs:
        """Raises PushNotificationNotSupportedError."""
        if self._push is None:
            raise PushNotificationNotSupportedError()
        return self._push

    async def _read_target(
        self, config: TaskPushNotificationConfig, context: ServerCallContext
    ) -> PushTarget:
        push = self._find_push()
        return await push.read_target(config, shape_of_call(context), is_v03=is_v03_call(context))

    async def _store_target(
        self, row: RunRow, target: PushTarget, *, notify_after: int = 0
    ) -> TaskPushNotificationConfig:
        config = await self._find_push().store(row, target, notify_after=notify_after)
        self._runs.followers.add_receiver(row.run_id)
        return config

    async def _read_task(self, row: RunRow, shape: ClientShape) -> Task:
        events = await self._runs.events(row.run_id)
        return await encode_aside(events, lambda: encode_snapshot(row.ref, events, shape))

    async def _read_listed_task(self, row: RunRow, shape: ClientShape) -> Task:
        """A task of many: always encoded in a thread, since short ones add up."""
        events = await self._runs.events(row.run_id)
        return await asyncio.to_thread(encode_snapshot, row.ref, events, shape)

    async def _read_outlines(self, rows: Sequence[RunRow], shape: ClientShape) -> list[Task]:
        """The tasks of runs, with their status and their messages alone."""
        outlines = await self._runs.outlines([row.run_id for row in rows])

        def encode() -> list[Task]:
            return [encode_snapshot(row.ref, outlines[row.run_id], shape) for row in rows]

        return await asyncio.to_thread(encode)

    def _read_cursor(self, row: RunRow, context: ServerCallContext) -> tuple[int, int] | None:
        return parse_cursor(headers_of_call(context).get("last-event-id"), row.last_seq)
