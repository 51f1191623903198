"""The push methods of both protocol versions, in the words of their JSON."""

from typing import Any

from tests.support.dialects import Dialect
from tests.support.harness import Client


def inline(dialect: Dialect, url: str, **more: Any) -> dict[str, Any]:
    """The configuration of a message that wants to be pushed, and is answered at once."""
    name = "pushNotificationConfig" if dialect.old else "taskPushNotificationConfig"
    config = {**dialect.at_once["configuration"], name: {"url": url, **more}}
    return {"configuration": config}


def bearer(dialect: Dialect, credentials: str) -> dict[str, Any]:
    """The authentication of a config."""
    if dialect.old:
        return {"authentication": {"schemes": ["Bearer"], "credentials": credentials}}
    return {"authentication": {"scheme": "Bearer", "credentials": credentials}}


async def set_config(client: Client, dialect: Dialect, task_id: str, **config: Any) -> dict[str, Any]:
    if dialect.old:
        params = {"taskId": task_id, "pushNotificationConfig": config}
        return await client.call("tasks/pushNotificationConfig/set", params)
    return await client.call("CreateTaskPushNotificationConfig", {"taskId": task_id, **config})


async def get_config(client: Client, dialect: Dialect, task_id: str, config_id: str) -> dict[str, Any]:
    if dialect.old:
        params = {"id": task_id, "pushNotificationConfigId": config_id}
        return await client.call("tasks/pushNotificationConfig/get", params)
    return await client.call("GetTaskPushNotificationConfig", {"taskId": task_id, "id": config_id})


async def list_configs(client: Client, dialect: Dialect, task_id: str) -> list[dict[str, Any]]:
    if dialect.old:
        old_answer = await client.call("tasks/pushNotificationConfig/list", {"id": task_id})
        return [read_config(dialect, config) for config in old_answer["result"]]
    answer = await client.call("ListTaskPushNotificationConfigs", {"taskId": task_id})
    return [read_config(dialect, config) for config in answer["result"].get("configs", ())]


async def delete_config(client: Client, dialect: Dialect, task_id: str, config_id: str) -> dict[str, Any]:
    if dialect.old:
        params = {"id": task_id, "pushNotificationConfigId": config_id}
        return await client.call("tasks/pushNotificationConfig/delete", params)
    return await client.call("DeleteTaskPushNotificationConfig", {"taskId": task_id, "id": config_id})


def read_config(dialect: Dialect, result: dict[str, Any]) -> dict[str, Any]:
    """A config as protocol 1.0 has it, whatever the version."""
    if not dialect.old:
        return result
    config = {"taskId": result["taskId"], **result["pushNotificationConfig"]}
    if "authentication" in config:
        [scheme] = config["authentication"].pop("schemes")
        config["authentication"]["scheme"] = scheme
    return config
