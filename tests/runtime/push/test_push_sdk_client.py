"""The SDK's own client with push configs, over both protocol versions."""

from a2a.types import (
    DeleteTaskPushNotificationConfigRequest,
    GetTaskPushNotificationConfigRequest,
    ListTaskPushNotificationConfigsRequest,
    TaskPushNotificationConfig,
)

from tests.runtime.server.test_sdk_clients import asking, connected, versions
from tests.support.client_stage import VERSION, serve_stage
from tests.support.fakes.push_receiver import OPERATOR, push_receiver


@versions
async def test_the_client_of_the_sdk_sets_finds_lists_and_deletes(version: str) -> None:
    async with (
        push_receiver() as receiver,
        serve_stage(OPERATOR) as stage,
        connected(stage.url, version, streaming=False) as client,
    ):
        [response] = [item async for item in client.send_message(asking(VERSION))]
        task_id = response.task.id
        url = f"{receiver.url}/sdk"
        hook = TaskPushNotificationConfig(task_id=task_id, url=url, id="mine", token="t")
        stored = await client.create_task_push_notification_config(hook)
        named = GetTaskPushNotificationConfigRequest(task_id=task_id, id="mine")
        found = await client.get_task_push_notification_config(named)
        everything = ListTaskPushNotificationConfigsRequest(task_id=task_id)
        listed = await client.list_task_push_notification_configs(everything)
        [received] = await receiver.wait_for("/sdk", "completed")
        deleted = DeleteTaskPushNotificationConfigRequest(task_id=task_id, id="mine")
        await client.delete_task_push_notification_config(deleted)
        left = await client.list_task_push_notification_configs(everything)
    assert (stored.id, stored.task_id, stored.url) == ("mine", task_id, url)
    assert stored == found
    assert list(listed.configs) == [stored]
    assert list(left.configs) == []
    assert (received.kind == "v03") is (version == "0.3")
