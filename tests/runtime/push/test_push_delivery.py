"""The delivery of push notifications: receivers that fail or hang, restarts, and what is never sent."""

import asyncio
import ipaddress
import logging
import signal
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from ai_platform_engineering.core.push_settings import PushSettings
from ai_platform_engineering.net.connections import SystemConnector
from ai_platform_engineering.net.url_policy import FetchRefused
from ai_platform_engineering.runtime.log.push_store import PushTarget
from ai_platform_engineering.runtime.push.receiver_client import NotificationFailed, ReceiverClient
from tests.runtime.push.push_calls import inline
from tests.runtime.push.test_push_contract import states, verify
from tests.support.agent_services import eventually
from tests.support.dialects import V10
from tests.support.echo_supervisor import BlockingScenario
from tests.support.fakes.model import ScriptedChatModel
from tests.support.fakes.push_receiver import OPERATOR, push_receiver
from tests.support.fakes.script import Say, Script, Turn
from tests.support.fakes.tunnel import tunnel_to
from tests.support.harness import PLAIN, Client, supervisor
from tests.support.ports import free_port
from tests.support.processes import start_command
from tests.support.storages import in_folder, supervisor_on

YES = Script(Turn(Say("Yes.")))


async def ask(client: Client, url: str, **more: Any) -> str:
    """Asks, is pushed to, and gets the id of the task once it has ended."""
    config = {"taskPushNotificationConfig": {"url": url, **more}}
    message = {"message": client.message("Well?", "1.0")}
    answer = await client.call("SendMessage", {**message, "configuration": config})
    assert answer["result"]["task"]["status"]["state"] == "TASK_STATE_COMPLETED"
    task_id: str = answer["result"]["task"]["id"]
    return task_id


async def test_a_receiver_that_fails_gets_everything_in_order_when_it_is_back() -> None:
    async with push_receiver() as receiver, supervisor(YES, env=OPERATOR) as client:
        receiver.statuses["/hook"] = [500, 503, 404]
        await ask(client, f"{receiver.url}/hook")
        received = await receiver.wait_for("/hook", "completed")
        tried = receiver.tried("/hook")
        claims = [await verify(client, item) for item in tried]
    assert states(tried) == ["working"] * 4 + ["completed"]
    assert states(received) == ["working", "completed"]
    # An attempt is told from a new notification by its id.
    assert len({claim["jti"] for claim in claims}) == 2
    assert len({claim["jti"] for claim in claims[:4]}) == 1


async def test_after_so_many_attempts_a_notification_is_given_up_and_the_next_is_sent(
    caplog: pytest.LogCaptureFixture,
) -> None:
    env = {**OPERATOR, "A2A_PUSH_ATTEMPTS": "2"}
    async with push_receiver() as receiver, supervisor(YES, env=env) as client:
        receiver.statuses["/a-secret-path"] = [500, 500]
        with caplog.at_level(logging.DEBUG):
            await ask(
                client,
                f"{receiver.url}/a-secret-path",
                token="a-secret-token",
                authentication={"scheme": "Bearer", "credentials": "a-secret-credential"},
            )
            await receiver.wait_for("/a-secret-path", "completed")
    assert states(receiver.tried("/a-secret-path")) == ["working", "working", "completed"]
    own_lines = [line.getMessage() for line in caplog.records if line.name.startswith("ai_platform")]
    [given_up] = [line for line in own_lines if "the last one" in line]
    assert "status 500" in given_up
    assert receiver.url in given_up
    assert "a-secret" not in "\n".join(own_lines)


async def test_a_redirect_is_not_followed() -> None:
    env = {**OPERATOR, "A2A_PUSH_ATTEMPTS": "1"}
    async with push_receiver() as receiver, supervisor(YES, env=env) as client:
        receiver.location = f"{receiver.url}/elsewhere"
        receiver.statuses["/hook"] = [307]
        await ask(client, f"{receiver.url}/hook")
        await receiver.wait_for("/hook", "completed")
    assert receiver.tried("/elsewhere") == []


async def test_a_receiver_that_hangs_delays_neither_the_run_nor_others() -> None:
    """By causality: the first receiver has not answered yet when the run has ended and others know it."""
    waiting = BlockingScenario()
    env = {**OPERATOR, "A2A_PUSH_TIMEOUT_SECONDS": "300"}
    async with (
        push_receiver() as receiver,
        supervisor(waiting.script, tools=[waiting.tool], env=env) as client,
    ):
        receiver.held["/hangs"] = asyncio.Event()
        message = V10.message("Well?")
        sent = await client.call("SendMessage", {**message, **inline(V10, f"{receiver.url}/hangs")})
        task_id = V10.sent(sent)["id"]
        await receiver.wait_for_tries("/hangs", 1)
        params = {"taskId": task_id, "id": "other", "url": f"{receiver.url}/other"}
        await client.call("CreateTaskPushNotificationConfig", params)
        waiting.released.set()
        await receiver.wait_for("/other", "completed")
        task = (await client.call("GetTask", {"id": task_id}))["result"]
        assert task["status"]["state"] == "TASK_STATE_COMPLETED"
        assert states(receiver.tried("/hangs")) == ["working"]
        receiver.held["/hangs"].set()
        received = await receiver.wait_for("/hangs", "completed")
    assert states(received) == ["working", "completed"]


async def test_many_tasks_of_a_host_that_hangs_do_not_delay_another_host() -> None:
    env = {
        **OPERATOR,
        "A2A_PUSH_TIMEOUT_SECONDS": "300",
        "A2A_PUSH_MAX_CONNECTIONS": "3",
        "A2A_PUSH_MAX_CONNECTIONS_PER_HOST": "2",
    }
    async with (
        push_receiver() as dead,
        push_receiver() as alive,
        supervisor(YES, env=env) as client,
    ):
        dead.held["/hangs"] = asyncio.Event()
        for _ in range(5):
            await ask(client, f"{dead.url}/hangs")
        await ask(client, f"{alive.url}/hook")
        received = await alive.wait_for("/hook", "completed")
        assert len(dead.tried("/hangs")) == 2  # so many at once, and none of them has an answer
        dead.held["/hangs"].set()
        await dead.wait_for_tries("/hangs", 10)
    assert states(received) == ["working", "completed"]


async def test_a_delivery_that_ends_makes_room_for_one_more_to_its_host() -> None:
    env = {
        **OPERATOR,
        "A2A_PUSH_TIMEOUT_SECONDS": "300",
        "A2A_PUSH_MAX_CONNECTIONS": "5",
        "A2A_PUSH_MAX_CONNECTIONS_PER_HOST": "2",
    }
    paths = ["/first", "/second", "/third", "/fourth"]
    async with push_receiver() as busy, push_receiver() as other, supervisor(YES, env=env) as client:
        busy.held = {path: asyncio.Event() for path in paths}
        for path in paths:
            await ask(client, f"{busy.url}{path}")
        await busy.wait_for_tries("/second", 1)
        busy.held["/first"].set()
        await busy.wait_for_tries("/third", 1)
        await ask(client, f"{other.url}/hook")
        await other.wait_for("/hook", "completed")
        assert busy.most_at_once == 2
        for path in paths:
            busy.held[path].set()
        for path in paths:
            await busy.wait_for(path, "completed")
    assert busy.most_at_once == 2


async def test_what_a_stopped_server_had_not_delivered_is_delivered_by_the_next(tmp_path: Path) -> None:
    async with push_receiver() as receiver:
        receiver.statuses["/hook"] = [500] * 1000
        env = {**OPERATOR, "A2A_PUSH_ATTEMPTS": "100", "A2A_PUSH_RETRY_SECONDS": "0.05"}
        model = ScriptedChatModel(script=YES)
        async with supervisor_on(in_folder(tmp_path), model, env=env) as client:
            await ask(client, f"{receiver.url}/hook", token="a-token")
            before = await verify(client, (await receiver.wait_for_tries("/hook", 1))[0])
        receiver.statuses.clear()
        async with supervisor_on(in_folder(tmp_path), model, env=env) as client:
            received = await receiver.wait_for("/hook", "completed")
            after = await verify(client, received[0])  # the key is the same: it is kept beside the database
    assert states(received) == ["working", "completed"]
    assert before["jti"] == after["jti"]
    assert received[0].headers["x-a2a-notification-token"] == "a-token"
    [key_file] = tmp_path.rglob("notification-key.pem")
    assert key_file.stat().st_mode & 0o077 == 0


async def test_what_a_killed_process_had_not_delivered_is_delivered_after_its_restart(tmp_path: Path) -> None:
    async with push_receiver() as receiver, httpx.AsyncClient(timeout=120, verify=PLAIN) as http:
        receiver.statuses["/hook"] = [500] * 100_000
        port = str(free_port())
        env = {
            **OPERATOR,
            "CAIPE_HOME": str(tmp_path),
            "A2A_PUSH_ATTEMPTS": "100",
            "A2A_PUSH_RETRY_SECONDS": "0.2",
            "A2A_PUSH_MAX_RETRY_SECONDS": "0.2",
        }
        client = Client(f"http://127.0.0.1:{port}/", http)
        async with start_command("caipe", "serve", "--port", port, env=env) as program:
            await program.wait_for_stderr("serving on")
            task_id = await ask(client, f"{receiver.url}/hook")
            await receiver.wait_for_tries("/hook", 1)
            program.send_signal(signal.SIGKILL)
            await program.process.wait()
        assert receiver.taken("/hook") == []
        receiver.statuses.clear()
        async with start_command("caipe", "serve", "--port", port, env=env):
            received = await receiver.wait_for("/hook", "completed")
    assert states(received) == ["working", "completed"]
    assert received[-1].update["id"] == task_id


class ChangingDns:
    """A DNS server that gives a name a public address first, and then another."""

    def __init__(self, *addresses: str) -> None:
        self.addresses_left = [ipaddress.ip_address(address) for address in addresses]
        self.connected: list[str] = []

    async def addresses(self, name: str) -> tuple[Any, ...]:
        return (self.addresses_left.pop(0),)

    async def connect(self, address: Any, port: int) -> Any:
        self.connected.append(str(address))
        raise OSError("nothing is there")


async def test_a_name_that_leads_to_a_private_address_later_is_not_followed_there() -> None:
    dns = ChangingDns("93.184.216.34", "127.0.0.1")
    client = ReceiverClient(PushSettings(), dns)
    target = await client.check_url("https://hook.example.com/a")
    with pytest.raises(FetchRefused):
        await client.post("https://hook.example.com/a", {}, b"{}")
    assert target.host == "hook.example.com"
    assert dns.connected == []


async def test_a_receiver_behind_tls_and_a_proxy_is_reached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "hook.corp.example"
    async with push_receiver() as receiver, tunnel_to(receiver.url, name, tmp_path) as tunnel:
        monkeypatch.setenv("HTTPS_PROXY", tunnel.proxy)
        monkeypatch.setenv("SSL_CERT_FILE", str(tunnel.bundle))
        client = ReceiverClient(PushSettings(private_hosts=(name,)), UnknownNames())
        await client.post(f"https://{name}/hook?a=b", {"X-Test": "yes"}, b'{"task": {}}')
        monkeypatch.delenv("SSL_CERT_FILE")
        untrusting = ReceiverClient(PushSettings(private_hosts=(name,)), UnknownNames())
        with pytest.raises(NotificationFailed):
            await untrusting.post(f"https://{name}/hook", {}, b"{}")
    [received] = receiver.received
    assert (received.path, received.raw) == ("/hook", b'{"task": {}}')
    assert (received.headers["host"], received.headers["x-test"]) == (name, "yes")
    assert tunnel.asked[0] == f"CONNECT {name}:443"


class UnknownNames(SystemConnector):
    """A resolver that knows no name, as in a network where the proxy alone does."""

    async def addresses(self, name: str) -> tuple[Any, ...]:
        raise OSError("no such name")


def test_receivers_are_not_named_with_their_secrets() -> None:
    target = PushTarget("https://h.example/secret", "https://h.example", token="secret", credentials="secret")
    assert "secret" not in repr(target)


async def test_a_run_whose_states_are_pushed_is_followed(tmp_path: Path) -> None:
    """Its asker has left, and with RUN_UNFOLLOWED_SECONDS a run without followers would be cut short."""
    waiting = BlockingScenario()
    model = ScriptedChatModel(script=waiting.script)
    env = {**OPERATOR, "RUN_UNFOLLOWED_SECONDS": "3600"}
    storage = in_folder(tmp_path)
    async with (
        push_receiver() as receiver,
        supervisor_on(storage, model, tools=[waiting.tool], env=env) as client,
    ):
        ids: list[str] = []
        for config in (inline(V10, f"{receiver.url}/hook"), V10.at_once):
            sent = await client.call("SendMessage", {**V10.message("Well?"), **config})
            ids.append(V10.sent(sent)["id"])
        [pushed, unpushed] = ids
        since_when = partial(storage.log.find_unfollowed_since, unpushed)
        await waiting.started.wait()
        await eventually(since_when, lambda since: since is not None)
        assert await storage.log.find_unfollowed_since(pushed) is None
        params = {"taskId": unpushed, "url": f"{receiver.url}/late"}
        await client.call("CreateTaskPushNotificationConfig", params)
        await eventually(since_when, lambda since: since is None)
        waiting.released.set()
        await receiver.wait_for("/hook", "completed")
        await receiver.wait_for("/late", "completed")
