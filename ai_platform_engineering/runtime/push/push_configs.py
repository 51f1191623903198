"""The push notification configs of tasks, as clients set, get, list and delete them."""

import re

from a2a.types import (
    ListTaskPushNotificationConfigsRequest,
    ListTaskPushNotificationConfigsResponse,
    TaskPushNotificationConfig,
)
from a2a.utils.errors import InvalidParamsError, TaskNotFoundError

from ai_platform_engineering.a2a.client_shape import ClientShape
from ai_platform_engineering.core.errors import Refused
from ai_platform_engineering.net.url_policy import FetchFailed, FetchRefused
from ai_platform_engineering.runtime.log.log_rows import RunRow
from ai_platform_engineering.runtime.log.push_rules import check_config_count
from ai_platform_engineering.runtime.log.push_store import PushConfig, PushStore, PushTarget
from ai_platform_engineering.runtime.push.receiver_client import ReceiverClient

_MAX_PAGE = 100
_MAX_ID_CHARS = 256
_MAX_SECRET_CHARS = 4096
_HEADER_VALUE = re.compile(r"[\x21-\x7e]+(?: [\x21-\x7e]+)*")
_SCHEME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}")
_NOT_FOUND = "Task not found. It has no push notification config with this id."


class PushConfigs:
    """Checks and stores the configs of runs. Raises errors of the protocol.

    What a client gives as a token or as credentials is never sent back: whoever shares its conversations
    could read it."""

    def __init__(self, store: PushStore, client: ReceiverClient) -> None:
        self._store = store
        self._client = client

    async def read_target(
        self, config: TaskPushNotificationConfig, shape: ClientShape, *, is_v03: bool
    ) -> PushTarget:
        """The target of a config, if notifications may be sent there."""
        if len(config.id) > _MAX_ID_CHARS:
            raise InvalidParamsError(message=f"The id of a config has at most {_MAX_ID_CHARS} characters.")
        _check_header_value("token", config.token)
        _check_header_value("authentication.credentials", config.authentication.credentials)
        scheme = config.authentication.scheme
        if scheme and not _SCHEME.fullmatch(scheme):
            raise InvalidParamsError(message="authentication: this is no name of an HTTP scheme.")
        if config.authentication.credentials and not scheme:
            raise InvalidParamsError(message="authentication: credentials need a scheme, such as Bearer.")
        try:
            url = await self._client.check_url(config.url)
        except (FetchRefused, FetchFailed) as error:
            raise InvalidParamsError(message=f"Notifications cannot be sent there. {error}") from None
        return PushTarget(
            url=config.url.strip(),
            host=url.origin,
            config_id=config.id,
            token=config.token,
            scheme=scheme,
            credentials=config.authentication.credentials,
            is_v03=is_v03,
            shape=shape,
        )

    async def check_room(self, row: RunRow, target: PushTarget) -> None:
        """Refuses a config that would be one too many, before its message is taken."""
        limits = self._store.limits
        configs = await self._store.list_configs(row.run_id, limit=limits.configs_per_run)
        try:
            check_config_count(
                {config.target.config_id for config in configs}, target.for_run(row.run_id), limits
            )
        except Refused as error:
            raise InvalidParamsError(message=str(error)) from None

    async def store(
        self, row: RunRow, target: PushTarget, *, notify_after: int = 0
    ) -> TaskPushNotificationConfig:
        try:
            config = await self._store.set_config(row.run_id, target, notify_after=notify_after)
        except Refused as error:
            raise InvalidParamsError(message=str(error)) from None
        return _to_protobuf(config)

    async def find(self, row: RunRow, config_id: str) -> TaskPushNotificationConfig:
        """The config with this id; without one, the first: protocol 0.3 knows a task with one config."""
        if config_id:
            config = await self._store.find_config(row.run_id, config_id)
        else:
            config = next(iter(await self._store.list_configs(row.run_id, limit=1)), None)
        if config is None:
            raise TaskNotFoundError(message=_NOT_FOUND)
        return _to_protobuf(config)

    async def list(
        self, row: RunRow, params: ListTaskPushNotificationConfigsRequest
    ) -> ListTaskPushNotificationConfigsResponse:
        if params.page_size < 0:
            raise InvalidParamsError(message="pageSize: it is at least 1.")
        limit = min(params.page_size or _MAX_PAGE, _MAX_PAGE)
        after = _read_page_token(params.page_token)
        configs = await self._store.list_configs(row.run_id, after=after, limit=limit + 1)
        response = ListTaskPushNotificationConfigsResponse(
            configs=[_to_protobuf(config) for config in configs[:limit]]
        )
        if len(configs) > limit:
            response.next_page_token = str(configs[limit - 1].number)
        return response

    async def delete(self, row: RunRow, config_id: str) -> None:
        """One that is not there is deleted, too: a client may ask again."""
        await self._store.delete_config(row.run_id, config_id)


def _check_header_value(name: str, value: str) -> None:
    if not value:
        return
    if len(value) > _MAX_SECRET_CHARS or not _HEADER_VALUE.fullmatch(value):
        raise InvalidParamsError(
            message=f"{name}: it is sent as an HTTP header, so it has at most {_MAX_SECRET_CHARS} visible "
            "ASCII characters."
        )


def _read_page_token(token: str) -> int:
    if not token:
        return 0
    if not (token.isascii() and token.isdigit() and len(token) < 16):
        raise InvalidParamsError(message="pageToken: it is not one of this list.")
    return int(token)


def _to_protobuf(config: PushConfig) -> TaskPushNotificationConfig:
    """The config without its secrets."""
    target = config.target
    message = TaskPushNotificationConfig(id=target.config_id, task_id=config.run_id, url=target.url)
    if target.scheme:
        message.authentication.scheme = target.scheme
    return message
