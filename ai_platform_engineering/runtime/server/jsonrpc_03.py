"""The methods of protocol 0.3, converted to those of 1.0; streams come from the run log.

The conversions are the SDK's. Its request handlers are not imported: their package loads SQLAlchemy wherever
it is installed, for a task store that is not ours.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from a2a.compat.v0_3 import conversions
from a2a.compat.v0_3 import types as types_v03
from a2a.server.context import ServerCallContext
from a2a.types import SendMessageRequest, Task
from a2a.utils import constants
from a2a.utils.errors import A2AError, VersionNotSupportedError
from a2a.utils.version_validator import validate_version
from pydantic import BaseModel, ValidationError
from starlette.requests import Request
from starlette.responses import Response

from ai_platform_engineering.a2a.protobuf_values import restore_integers
from ai_platform_engineering.core.errors import Refused
from ai_platform_engineering.core.tracebacks import format_traceback
from ai_platform_engineering.runtime.server.ascii_json import AsciiJSONResponse
from ai_platform_engineering.runtime.server.call_context import CallContextBuilder, extension_headers
from ai_platform_engineering.runtime.server.jsonrpc_call import JsonRpcCall, RequestId
from ai_platform_engineering.runtime.server.jsonrpc_errors import (
    INVALID_PARAMS,
    create_error_response,
    create_internal_error,
    create_problem_response,
    create_v03_error_response,
    create_validation_response,
)
from ai_platform_engineering.runtime.server.methods_10 import is_large
from ai_platform_engineering.runtime.server.request_handler import LogRequestHandler
from ai_platform_engineering.runtime.server.sse_stream import (
    LogStream,
    OpenStreams,
    StreamStart,
    jsonrpc_envelope,
)

log = logging.getLogger(__name__)

_Handler = Callable[[Any, ServerCallContext], Awaitable[Any]]

_PART_KINDS = ("text", "file", "data")
_MESSAGE_METHODS = ("message/send", "message/stream")
STREAMING_METHODS = ("message/stream", "tasks/resubscribe")
_DEFAULT_CONFIG = "default"  # what some clients ask for when they gave no id
_NO_KIND = "params.message.parts: every part needs a kind: text, file or data"
_UNREADABLE_MESSAGE = "params.message: it is nested too deeply, or a number or a file in it cannot be read"


class Methods03:
    """Answers calls of protocol 0.3."""

    def __init__(
        self, handler: LogRequestHandler, context_builder: CallContextBuilder, streams: OpenStreams
    ) -> None:
        self._handler = handler
        self._context_builder = context_builder
        self._streams = streams
        self._methods: dict[str, tuple[type[BaseModel], _Handler]] = {
            "message/send": (types_v03.SendMessageRequest, self._send_message),
            "message/stream": (types_v03.SendStreamingMessageRequest, self._open_message),
            "tasks/get": (types_v03.GetTaskRequest, self._get_task),
            "tasks/cancel": (types_v03.CancelTaskRequest, self._cancel_task),
            "tasks/resubscribe": (types_v03.TaskResubscriptionRequest, self._open_subscription),
            "agent/getAuthenticatedExtendedCard": (
                types_v03.GetAuthenticatedExtendedCardRequest,
                self._get_extended_card,
            ),
            "tasks/pushNotificationConfig/set": (
                types_v03.SetTaskPushNotificationConfigRequest,
                self._set_push_config,
            ),
            "tasks/pushNotificationConfig/get": (
                types_v03.GetTaskPushNotificationConfigRequest,
                self._get_push_config,
            ),
            "tasks/pushNotificationConfig/list": (
                types_v03.ListTaskPushNotificationConfigRequest,
                self._list_push_configs,
            ),
            "tasks/pushNotificationConfig/delete": (
                types_v03.DeleteTaskPushNotificationConfigRequest,
                self._delete_push_config,
            ),
        }

    def supports(self, method: str) -> bool:
        return method in self._methods

    async def answer(self, call: JsonRpcCall, request: Request) -> Response:
        """The response, a stream included; whatever is raised is an error of this protocol."""
        context = self._context_builder.build(request, is_v03=True)
        response = await self._answer(call, context)
        headers = extension_headers(context, is_v03=True)
        if isinstance(response, LogStream):
            response.extra_headers = headers
        else:
            response.headers.update(headers)
        return response

    async def _answer(self, call: JsonRpcCall, context: ServerCallContext) -> Response:
        model, handle = self._methods[call.method]
        try:
            message = model.model_validate(call.body)
        except ValidationError as error:
            return create_validation_response(call.request_id, error)
        try:
            params = _convert_message(call, message)
        except Refused as problem:
            return create_problem_response(call.request_id, INVALID_PARAMS, "Invalid params", [str(problem)])
        try:
            context.tenant = getattr(getattr(message, "params", message), "tenant", "")
            result = await _run(handle, params, context)
        except VersionNotSupportedError as refusal:
            return create_error_response(call.request_id, refusal)  # to a client of the other version
        except A2AError as refusal:
            return create_v03_error_response(call.request_id, refusal)
        except Exception as error:  # noqa: BLE001 - its text may hold a secret and stays in the log
            log.error("%s failed: %s", call.method, format_traceback(error))
            return create_v03_error_response(call.request_id, create_internal_error(error))
        if isinstance(result, StreamStart):
            envelope = jsonrpc_envelope(call.request_id)
            return LogStream(result, envelope, is_v03=True, streams=self._streams)
        return _create_response(call.request_id, result)

    async def _send_message(self, params: SendMessageRequest, context: ServerCallContext) -> types_v03.Task:
        return await _to_v03_task(await self._handler.on_message_send(params, context))

    async def _get_task(self, message: Any, context: ServerCallContext) -> types_v03.Task:
        request = conversions.to_core_get_task_request(message)
        return await _to_v03_task(await self._handler.on_get_task(request, context))

    async def _cancel_task(self, message: Any, context: ServerCallContext) -> types_v03.Task:
        request = conversions.to_core_cancel_task_request(message)
        return await _to_v03_task(await self._handler.on_cancel_task(request, context))

    async def _get_extended_card(self, message: Any, context: ServerCallContext) -> types_v03.AgentCard:
        request = conversions.to_core_get_extended_agent_card_request(message)
        return conversions.to_compat_agent_card(
            await self._handler.on_get_extended_agent_card(request, context)
        )

    async def _set_push_config(
        self, message: Any, context: ServerCallContext
    ) -> types_v03.TaskPushNotificationConfig:
        request = conversions.to_core_create_task_push_notification_config_request(message)
        config = await self._handler.on_create_task_push_notification_config(request, context)
        return conversions.to_compat_task_push_notification_config(config)

    async def _get_push_config(
        self, message: Any, context: ServerCallContext
    ) -> types_v03.TaskPushNotificationConfig:
        request = conversions.to_core_get_task_push_notification_config_request(message)
        if request.id == _DEFAULT_CONFIG:
            request.id = ""
        config = await self._handler.on_get_task_push_notification_config(request, context)
        return conversions.to_compat_task_push_notification_config(config)

    async def _list_push_configs(
        self, message: Any, context: ServerCallContext
    ) -> list[types_v03.TaskPushNotificationConfig]:
        request = conversions.to_core_list_task_push_notification_config_request(message)
        response = await self._handler.on_list_task_push_notification_configs(request, context)
        return [conversions.to_compat_task_push_notification_config(config) for config in response.configs]

    async def _delete_push_config(self, message: Any, context: ServerCallContext) -> None:
        request = conversions.to_core_delete_task_push_notification_config_request(message)
        await self._handler.on_delete_task_push_notification_config(request, context)

    async def _open_message(self, params: SendMessageRequest, context: ServerCallContext) -> StreamStart:
        return await self._handler.open_message(params, context)

    async def _open_subscription(self, message: Any, context: ServerCallContext) -> StreamStart:
        request = conversions.to_core_subscribe_to_task_request(message)
        return await self._handler.open_subscription(request, context)


async def _to_v03_task(task: Task) -> types_v03.Task:
    if is_large(task):
        return await asyncio.to_thread(conversions.to_compat_task, task)
    return conversions.to_compat_task(task)


@validate_version(constants.PROTOCOL_VERSION_0_3)
async def _run(handle: _Handler, params: Any, context: ServerCallContext) -> Any:
    return await handle(params, context)


def _convert_message(call: JsonRpcCall, request: Any) -> Any:
    """The request as its handler takes it: one with a message is converted to protocol 1.0.

    Raises Refused for a message that has the right form and cannot be read."""
    parts = ((call.params or {}).get("message") or {}).get("parts") or ()
    if any(part.get("kind") not in _PART_KINDS for part in parts):
        raise Refused(_NO_KIND)
    if call.method not in _MESSAGE_METHODS:
        return request
    try:
        return conversions.to_core_send_message_request(request)
    except Exception:  # noqa: BLE001 - whatever the conversion raises, the message is wrong
        raise Refused(_UNREADABLE_MESSAGE) from None


def _create_response(request_id: RequestId, result: Any) -> Response:
    content: dict[str, Any] = {"jsonrpc": "2.0"}
    if request_id is not None:
        content["id"] = request_id
    content["result"] = _to_json(result)
    return AsciiJSONResponse(restore_integers(content))


def _to_json(result: Any) -> Any:
    if isinstance(result, BaseModel):
        return result.model_dump(mode="json", by_alias=True, exclude_none=True)
    if isinstance(result, list):
        return [_to_json(item) for item in result]
    return result
