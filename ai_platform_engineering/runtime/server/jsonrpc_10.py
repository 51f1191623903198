"""The methods of protocol 1.0: parameters to protobuf, results to JSON, streams from the run log."""

import re
from collections.abc import Awaitable, Callable
from typing import Any

from a2a.server.context import ServerCallContext
from a2a.server.jsonrpc_models import MethodNotFoundError
from a2a.types.a2a_pb2 import (
    CancelTaskRequest,
    DeleteTaskPushNotificationConfigRequest,
    GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest,
    GetTaskRequest,
    ListTaskPushNotificationConfigsRequest,
    ListTasksRequest,
    SendMessageRequest,
    SendMessageResponse,
    SubscribeToTaskRequest,
    Task,
    TaskPushNotificationConfig,
)
from a2a.utils import constants
from a2a.utils.errors import A2AError, InvalidParamsError
from a2a.utils.version_validator import validate_version
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.message import Message
from starlette.requests import Request
from starlette.responses import Response

from ai_platform_engineering.a2a.protobuf_values import restore_integers
from ai_platform_engineering.runtime.server.ascii_json import AsciiJSONResponse
from ai_platform_engineering.runtime.server.call_context import CallContextBuilder, extension_headers
from ai_platform_engineering.runtime.server.jsonrpc_call import JsonRpcCall
from ai_platform_engineering.runtime.server.jsonrpc_errors import create_error_response
from ai_platform_engineering.runtime.server.request_handler import LogRequestHandler
from ai_platform_engineering.runtime.server.sse_stream import LogStream, OpenStreams, StreamStart

_Handler = Callable[[Any, ServerCallContext], Awaitable[Any]]


class Methods10:
    """Answers calls of protocol 1.0."""

    def __init__(
        self, handler: LogRequestHandler, context_builder: CallContextBuilder, streams: OpenStreams
    ) -> None:
        self._handler = handler
        self._context_builder = context_builder
        self._streams = streams
        self._methods: dict[str, tuple[type[Message], _Handler]] = {
            "SendMessage": (SendMessageRequest, handler.on_message_send),
            "SendStreamingMessage": (SendMessageRequest, handler.open_message),
            "SubscribeToTask": (SubscribeToTaskRequest, handler.open_subscription),
            "GetTask": (GetTaskRequest, handler.on_get_task),
            "ListTasks": (ListTasksRequest, handler.on_list_tasks),
            "CancelTask": (CancelTaskRequest, handler.on_cancel_task),
            "GetExtendedAgentCard": (GetExtendedAgentCardRequest, handler.on_get_extended_agent_card),
            "CreateTaskPushNotificationConfig": (
                TaskPushNotificationConfig,
                handler.on_create_task_push_notification_config,
            ),
            "GetTaskPushNotificationConfig": (
                GetTaskPushNotificationConfigRequest,
                handler.on_get_task_push_notification_config,
            ),
            "ListTaskPushNotificationConfigs": (
                ListTaskPushNotificationConfigsRequest,
                handler.on_list_task_push_notification_configs,
            ),
            "DeleteTaskPushNotificationConfig": (
                DeleteTaskPushNotificationConfigRequest,
                handler.on_delete_task_push_notification_config,
            ),
        }

    async def answer(self, call: JsonRpcCall, request: Request) -> Response:
        """The response, a stream included. Raises what is no A2AError."""
        if call.method not in self._methods:
            return create_error_response(call.request_id, MethodNotFoundError())
        message_type, handle = self._methods[call.method]
        try:
            message = _parse_params(call.params, message_type())
            context = self._context_builder.build(request, is_v03=False)
            context.tenant = getattr(message, "tenant", "")
            result = await _run(handle, message, context)
        except A2AError as error:
            return create_error_response(call.request_id, error)
        if isinstance(result, StreamStart):
            stream = LogStream(result, call.request_id, is_v03=False, streams=self._streams)
            stream.extra_headers = extension_headers(context, is_v03=False)
            return stream
        content = {"result": _to_json(message, result), "id": call.request_id, "jsonrpc": "2.0"}
        headers = extension_headers(context, is_v03=False)
        return AsciiJSONResponse(restore_integers(content), headers=headers)


@validate_version(constants.PROTOCOL_VERSION_1_0)
async def _run(handle: _Handler, message: Message, context: ServerCallContext) -> Any:
    return await handle(message, context)


def _parse_params(params: Any, message: Message) -> Message:
    """Reads parameters; fields of a newer protocol are left out. Raises InvalidParamsError, which names the
    field and not its value."""
    try:
        return ParseDict(params, message, ignore_unknown_fields=True)
    except Exception as error:  # noqa: BLE001 - protobuf raises many kinds, also RecursionError
        field = ".".join(re.findall(r"Failed to parse (\w+) field", str(error)))
        if field:
            raise InvalidParamsError(message=f"Invalid params: {field} cannot be read.") from None
        raise InvalidParamsError(message="Invalid params: send an object.") from None


def _to_json(message: Message, result: Any) -> Any:
    """The result of a method as JSON."""
    if isinstance(message, SendMessageRequest):
        if isinstance(result, Task):
            return MessageToDict(SendMessageResponse(task=result))
        return MessageToDict(SendMessageResponse(message=result))
    if isinstance(message, ListTasksRequest):
        # The fields of the list are always there, those of its tasks only when they are not empty.
        tasks = [MessageToDict(task) for task in result.tasks]
        return {
            "tasks": tasks,
            "nextPageToken": result.next_page_token,
            "pageSize": result.page_size,
            "totalSize": result.total_size,
        }
    if isinstance(result, Message):
        return MessageToDict(result)
    return result
