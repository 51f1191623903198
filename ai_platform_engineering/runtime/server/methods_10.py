"""The methods of protocol 1.0 for both bindings: parameters to protobuf, results to JSON."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from a2a.server.context import ServerCallContext
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
from a2a.utils.errors import InvalidParamsError
from a2a.utils.version_validator import validate_version
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.message import Message
from starlette.requests import Request

from ai_platform_engineering.a2a.protobuf_values import restore_integers
from ai_platform_engineering.runtime.server.call_context import CallContextBuilder, extension_headers
from ai_platform_engineering.runtime.server.request_handler import LogRequestHandler
from ai_platform_engineering.runtime.server.sse_stream import StreamStart

_Handler = Callable[[Any, ServerCallContext], Awaitable[Any]]

_QUICK_BYTES = 50_000  # of a result in protobuf; a larger one takes milliseconds

# They take as long as the run that they start or follow.
WAITING_METHODS = frozenset(("SendMessage", "SendStreamingMessage", "SubscribeToTask"))


@dataclass(frozen=True, slots=True)
class MethodResult:
    """What a method gives, a stream or JSON, and the headers that go with it."""

    content: Any
    stream: StreamStart | None
    headers: Mapping[str, str]
    is_large: bool = False


class Methods10:
    """Calls the methods of protocol 1.0 by their names."""

    def __init__(self, handler: LogRequestHandler, context_builder: CallContextBuilder) -> None:
        self._context_builder = context_builder
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

    def supports(self, name: str) -> bool:
        return name in self._methods

    def params_type(self, name: str) -> type[Message]:
        return self._methods[name][0]

    async def call(self, name: str, params: Any, request: Request) -> MethodResult:
        """Calls a method that is supported. Raises A2AError, and what is none."""
        message_type, handle = self._methods[name]
        message = _parse_params(params, message_type())
        context = self._context_builder.build(request, is_v03=False)
        context.tenant = getattr(message, "tenant", "")
        result = await _run(handle, message, context)
        headers = extension_headers(context, is_v03=False)
        if isinstance(result, StreamStart):
            return MethodResult(None, result, headers)
        if is_large(result):
            content = await asyncio.to_thread(_to_json, message, result)
            return MethodResult(content, None, headers, is_large=True)
        return MethodResult(_to_json(message, result), None, headers)


@validate_version(constants.PROTOCOL_VERSION_1_0)
async def _run(handle: _Handler, message: Message, context: ServerCallContext) -> Any:
    return await handle(message, context)


def _parse_params(params: Any, message: Message) -> Message:
    """Reads parameters; fields of a newer protocol are left out. Raises InvalidParamsError, which names the
    field and not its value."""
    _check_enums(params, message)
    try:
        return ParseDict(params, message, ignore_unknown_fields=True)
    except Exception as error:  # noqa: BLE001 - protobuf raises many kinds, also RecursionError
        field = ".".join(re.findall(r"Failed to parse (\w+) field", str(error)))
        if field:
            raise InvalidParamsError(message=f"Invalid params: {field} cannot be read.") from None
        raise InvalidParamsError(message="Invalid params: send an object.") from None


def _check_enums(params: Any, message: Message) -> None:
    """Raises InvalidParamsError for a word that is none of the field's: protobuf would leave the field out,
    and a list would not be filtered."""
    if not isinstance(params, dict):
        return
    for field in message.DESCRIPTOR.fields:
        value = params.get(field.camelcase_name, params.get(field.name))
        if field.enum_type is not None and isinstance(value, str):
            is_known = value in field.enum_type.values_by_name or value.isdecimal()
            if not is_known:
                raise InvalidParamsError(message=f"Invalid params: {field.camelcase_name} cannot be read.")


def is_large(result: Any) -> bool:
    """Whether a result takes so long to convert that it is done in a thread."""
    return isinstance(result, Message) and result.ByteSize() > _QUICK_BYTES


def _to_json(message: Message, result: Any) -> Any:
    """The result of a method as JSON."""
    return restore_integers(_to_dict(message, result))


def _to_dict(message: Message, result: Any) -> Any:
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
