"""The HTTP+JSON binding of protocol 1.0: its routes beside the JSON-RPC endpoint.

The SDK has routes of its own. They read bodies without a limit, send streams without ids, and end in a mount
that takes every path of two segments."""

import logging
from functools import partial
from typing import Any, NamedTuple

from a2a.utils.constants import A2A_JSON_MEDIA_TYPE
from a2a.utils.errors import A2AError, InvalidParamsError, InvalidRequestError
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ai_platform_engineering.core.tracebacks import format_traceback
from ai_platform_engineering.runtime.server.ascii_json import AsciiJSONResponse
from ai_platform_engineering.runtime.server.http_json_errors import (
    create_busy_response,
    create_error_response,
    create_internal_error_response,
    create_too_large_response,
    create_unsupported_media_response,
)
from ai_platform_engineering.runtime.server.identity import owner_of_request
from ai_platform_engineering.runtime.server.methods_10 import WAITING_METHODS, Methods10
from ai_platform_engineering.runtime.server.request_body import (
    BodyTooLarge,
    NotJson,
    UnsupportedMediaType,
    check_media_type,
    parse_body,
    read_body,
)
from ai_platform_engineering.runtime.server.request_limits import RequestLimits
from ai_platform_engineering.runtime.server.sse_stream import BARE, LogStream, OpenStreams, TooManyStreams

log = logging.getLogger(__name__)


class MethodRoute(NamedTuple):
    """A route of the binding and the method that it calls; names in the path are fields of its parameters."""

    verb: str
    path: str
    method: str


# The first that matches answers: an id that ends with a verb belongs to the verb.
METHOD_ROUTES = (
    MethodRoute("POST", "/message:send", "SendMessage"),
    MethodRoute("POST", "/message:stream", "SendStreamingMessage"),
    MethodRoute("GET", "/tasks", "ListTasks"),
    MethodRoute("POST", "/tasks/{id}:cancel", "CancelTask"),
    MethodRoute("POST", "/tasks/{id}:subscribe", "SubscribeToTask"),
    MethodRoute("GET", "/tasks/{id}:subscribe", "SubscribeToTask"),
    MethodRoute("GET", "/tasks/{id}", "GetTask"),
    MethodRoute("POST", "/tasks/{taskId}/pushNotificationConfigs", "CreateTaskPushNotificationConfig"),
    MethodRoute("GET", "/tasks/{taskId}/pushNotificationConfigs", "ListTaskPushNotificationConfigs"),
    MethodRoute("GET", "/tasks/{taskId}/pushNotificationConfigs/{id}", "GetTaskPushNotificationConfig"),
    MethodRoute("DELETE", "/tasks/{taskId}/pushNotificationConfigs/{id}", "DeleteTaskPushNotificationConfig"),
    MethodRoute("GET", "/extendedAgentCard", "GetExtendedAgentCard"),
)


class A2AJSONResponse(AsciiJSONResponse):
    """JSON with the media type of the protocol."""

    media_type = A2A_JSON_MEDIA_TYPE


class HttpJsonBinding:
    """Answers requests to the routes with JSON in ASCII, or with a stream from the run log."""

    def __init__(self, methods: Methods10, streams: OpenStreams, limits: RequestLimits) -> None:
        self._methods = methods
        self._streams = streams
        self._limits = limits

    def routes(self) -> list[Route]:
        return [self._build_route(row) for row in METHOD_ROUTES]

    def _build_route(self, row: MethodRoute) -> Route:
        async def handle(request: Request) -> Response:
            return await self._answer(row, request)

        route = Route(row.path, handle, methods=[row.verb])
        if row.method in WAITING_METHODS and route.methods is not None:
            route.methods.discard("HEAD")  # it would stay open as long as the run, for nothing
        return route

    async def _answer(self, row: MethodRoute, request: Request) -> Response:
        try:
            params = await self._read_params(row, request)
            if row.method in WAITING_METHODS:
                return await self._streams.run_within_limits(
                    owner_of_request(request), partial(self._call, row, params, request)
                )
            return await self._call(row, params, request)
        except A2AError as error:
            return create_error_response(error)
        except TooManyStreams as refusal:
            return create_busy_response(refusal)
        except BodyTooLarge as refusal:
            return create_too_large_response(str(refusal))
        except UnsupportedMediaType as refusal:
            return create_unsupported_media_response(str(refusal))
        except Exception as error:  # noqa: BLE001 - its text may hold a secret and stays in the log
            log.error("%s failed: %s", row.method, format_traceback(error))
            return create_internal_error_response(error)

    async def _call(self, row: MethodRoute, params: dict[str, Any], request: Request) -> Response:
        result = await self._methods.call(row.method, params, request)
        if result.stream is not None:
            stream = LogStream(result.stream, BARE, is_v03=False, streams=self._streams)
            stream.extra_headers = result.headers
            return stream
        content = result.content
        if content is None:
            content = {}
        return await A2AJSONResponse.create(content, result.headers, is_large=result.is_large)

    async def _read_params(self, row: MethodRoute, request: Request) -> dict[str, Any]:
        """The parameters of the method, from the path and from the body or the query.

        Raises A2AError, BodyTooLarge and UnsupportedMediaType."""
        if row.verb == "POST":
            params = await self._read_object(request)
        else:
            params = _read_query(request, self._methods.params_type(row.method))
        params.update(request.path_params)
        problem = self._limits.find_params_problem(params)
        if problem:
            raise InvalidParamsError(message=f"Invalid params: {problem}")
        return params

    async def _read_object(self, request: Request) -> dict[str, Any]:
        """The body, which may be left out: the path says all that some methods need."""
        content = await read_body(request, self._limits)
        if not content:
            return {}
        check_media_type(request)
        try:
            params = parse_body(content, self._limits)
        except NotJson as problem:
            raise InvalidRequestError(message=str(problem)) from None
        if not isinstance(params, dict):
            raise InvalidRequestError(message="Invalid Request: send one JSON object.")
        return params


def _read_query(request: Request, params_type: type[Message]) -> dict[str, Any]:
    """The parameters of a query as ProtoJSON has them: numbers and times may be strings, booleans not."""
    params: dict[str, Any] = {}
    fields = params_type.DESCRIPTOR.fields_by_camelcase_name
    for name, value in request.query_params.items():
        field = fields.get(name)
        if field is None:
            continue
        params[name] = value
        if field.type == FieldDescriptor.TYPE_BOOL:
            params[name] = {"true": True, "false": False}.get(value.lower(), value)
    return params
