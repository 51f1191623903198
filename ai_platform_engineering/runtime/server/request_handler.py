"""The A2A request handler: every method of the protocol over the run log.

Opening a stream checks everything, so that following it has nothing left to refuse."""

import contextlib
from collections.abc import Callable
from typing import Any, NoReturn

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

from ai_platform_engineering.a2a.codec import encode_snapshot
from ai_platform_engineering.core.errors import Refused, RunNotFound, UnsupportedPart, WrongState
from ai_platform_engineering.runtime.log.run_log import RunRow
from ai_platform_engineering.runtime.runs.incoming_message import IncomingMessage, read_message
from ai_platform_engineering.runtime.runs.runs import Runs
from ai_platform_engineering.runtime.server.identity import owner_of_call
from ai_platform_engineering.runtime.server.required_fields import check_required_fields
from ai_platform_engineering.runtime.server.sse_stream import OpenStreams, StreamStart, parse_cursor
from ai_platform_engineering.runtime.server.task_list import build_task_page


class LogRequestHandler:
    """Starts runs and answers requests from the run log; its methods have the names of the SDK's handler."""

    def __init__(
        self,
        runs: Runs,
        *,
        max_file_bytes: int,
        streams: OpenStreams | None = None,
        extended_card: Callable[[], AgentCard] | None = None,
    ) -> None:
        """`extended_card`: the card for callers with a key, where others get less."""
        self._runs = runs
        self._extended_card = extended_card
        self._max_file_bytes = max_file_bytes
        self._streams = streams

    # --- opening of streams ---------------------------------------------------------------------------------

    async def open_message(self, params: SendMessageRequest, context: ServerCallContext) -> StreamStart:
        """Starts, continues or finds the run of a message; the caller follows it."""
        check_required_fields(params)
        validate_history_length(params.configuration)
        if params.configuration.HasField("task_push_notification_config"):
            raise PushNotificationNotSupportedError()
        try:
            row, last_seq = await self._runs.accept(self._read_message(params.message, context))
        except UnsupportedPart as error:
            raise ContentTypeNotSupportedError(message=str(error)) from None
        except RunNotFound as error:
            raise TaskNotFoundError(message=str(error)) from None
        except WrongState as error:
            raise UnsupportedOperationError(message=str(error)) from None
        except Refused as error:
            raise InvalidParamsError(message=str(error)) from None
        cursor = self._read_cursor(row, context)
        if cursor:
            return StreamStart(row, *cursor)
        return StreamStart(row, last_seq, snapshot=last_seq > 0)

    async def open_subscription(
        self, params: SubscribeToTaskRequest, context: ServerCallContext
    ) -> StreamStart:
        """Finds the run of a task; the caller follows it."""
        check_required_fields(params)
        row = await self._find_run(params.id, context)
        cursor = self._read_cursor(row, context)
        if row.status == "ended" and (cursor is None or cursor == (row.last_seq, 0)):
            raise UnsupportedOperationError(message="The task has ended; use tasks/get.")
        if cursor:
            return StreamStart(row, *cursor)
        return StreamStart(row, row.last_seq, snapshot=True)

    # --- methods of the protocol ----------------------------------------------------------------------------

    async def on_message_send(self, params: SendMessageRequest, context: ServerCallContext) -> Task:
        start = await self.open_message(params, context)
        if not params.configuration.return_immediately:
            # A server that stops does not wait for the answer: the client gets the task as it is then.
            with self._streams.track() if self._streams else contextlib.nullcontext():
                async for _ in self._runs.follow(start.row.run_id, start.after):
                    pass
        return apply_history_length(await self._read_task(start.row), params.configuration)

    async def on_get_task(self, params: GetTaskRequest, context: ServerCallContext) -> Task:
        check_required_fields(params)
        validate_history_length(params)
        row = await self._find_run(params.id, context)
        return apply_history_length(await self._read_task(row), params)

    async def on_cancel_task(self, params: CancelTaskRequest, context: ServerCallContext) -> Task:
        check_required_fields(params)
        row = await self._find_run(params.id, context)
        if not await self._runs.cancel(row.run_id, by=context.user.user_name):
            raise TaskNotCancelableError(message="The task has ended.")
        return await self._read_task(row)

    async def on_list_tasks(self, params: ListTasksRequest, context: ServerCallContext) -> ListTasksResponse:
        check_required_fields(params)
        validate_history_length(params)
        if params.HasField("page_size"):
            validate_page_size(params.page_size)
        rows = await self._runs.find_runs(owner_of_call(context), params.context_id or None)
        tasks = [(row.updated, await self._read_task(row)) for row in rows]
        return build_task_page(params, tasks)

    async def on_get_extended_agent_card(
        self, params: GetExtendedAgentCardRequest, context: ServerCallContext
    ) -> AgentCard:
        if self._extended_card is None:
            raise ExtendedAgentCardNotConfiguredError()
        return self._extended_card()

    async def on_create_task_push_notification_config(
        self, params: TaskPushNotificationConfig, context: ServerCallContext
    ) -> TaskPushNotificationConfig:
        _refuse_push_notifications()

    async def on_get_task_push_notification_config(
        self, params: GetTaskPushNotificationConfigRequest, context: ServerCallContext
    ) -> TaskPushNotificationConfig:
        _refuse_push_notifications()

    async def on_list_task_push_notification_configs(
        self, params: ListTaskPushNotificationConfigsRequest, context: ServerCallContext
    ) -> ListTaskPushNotificationConfigsResponse:
        _refuse_push_notifications()

    async def on_delete_task_push_notification_config(
        self, params: DeleteTaskPushNotificationConfigRequest, context: ServerCallContext
    ) -> None:
        _refuse_push_notifications()

    # --- helpers --------------------------------------------------------------------------------------------

    def _read_message(self, message: Message, context: ServerCallContext) -> IncomingMessage:
        return read_message(
            message,
            owner=owner_of_call(context),
            principal=context.user.user_name,
            max_file_bytes=self._max_file_bytes,
        )

    async def _find_run(self, task_id: str, context: ServerCallContext) -> RunRow:
        try:
            return await self._runs.get(task_id, owner_of_call(context))
        except RunNotFound as error:
            raise TaskNotFoundError(message=str(error)) from None

    async def _read_task(self, row: RunRow) -> Task:
        return encode_snapshot(row.ref, await self._runs.events(row.run_id))

    def _read_cursor(self, row: RunRow, context: ServerCallContext) -> tuple[int, int] | None:
        headers: dict[str, Any] = context.state.get("headers") or {}
        return parse_cursor(headers.get("last-event-id"), row.last_seq)


def _refuse_push_notifications() -> NoReturn:
    raise PushNotificationNotSupportedError()
