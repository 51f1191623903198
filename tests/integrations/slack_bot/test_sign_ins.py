"""Signing in to a hosted tool server from Slack: offered by runs and commands, finished by one person."""

import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.integrations.slack_bot import blocks, sign_in_messages
from ai_platform_engineering.multi_agents.platform_engineer.protocol_bindings.a2a.main import build_app
from tests.support.agent_services import eventually
from tests.support.database_servers import DatabaseServers
from tests.support.fakes.clock import ScaledClock
from tests.support.fakes.oauth_server import OAuthServer, allow, serve_oauth
from tests.support.fakes.script import Book, Call, Say, Script, Turn
from tests.support.fakes.slack import FakeSlack
from tests.support.harness import FAST, PLAIN, Client, serve_app
from tests.support.oauth_stage import serve_protected
from tests.support.providers import OPENAI
from tests.support.slack_processes import connect_bots, empty_database
from tests.support.slack_workspace import LIMITS, BotHarness, join_texts

ASKS = Script(
    Turn(Call("task", {"description": "who am I there", "subagent_type": "desk"})),
    Turn(Say("{{tool:desk}}")),
)
WORKER = Script(Turn(Call("whoami", {})), Turn(Say("{{tool:whoami}}")))
WITHOUT_TOOLS = Script(Turn(Say("I cannot: a sign-in is needed.")))


@dataclass
class SignInStage:
    """Slack, the supervisor with an agent whose tool server wants tokens, and an authorization server."""

    on: BotHarness
    authorization: OAuthServer
    book: Book

    def offers(self, action_id: str, user: str = "U1") -> list[Any]:
        """The ephemeral messages of a user with a button of this action."""
        return [
            one
            for one in self.on.slack.ephemerals
            if one.recipient[1] == user and f"'{action_id}'" in str(one.all_blocks)
        ]

    async def wait_for_offer(self, action_id: str, user: str = "U1") -> Any:
        return (await self.on.slack.wait(lambda: self.offers(action_id, user)))[-1]

    async def open_link(self, message: Any, account: str) -> str:
        """Opens the link of a message and allows it; the address at which the browser ends."""
        return await allow(find_url(message.all_blocks), account)

    async def login_state(self, user: str) -> Any:
        api = self.on.supervisor_for("1.0", user)
        response = await self.on.client.http.get(f"{self.on.client.url}v1/agents", headers=api.headers)
        [login] = next(agent for agent in response.json()["agents"] if agent["name"] == "desk")["logins"]
        return login["signed_in_at"]


def find_url(message_blocks: Any) -> str:
    [url] = [
        element["url"]
        for block in message_blocks
        for element in block.get("elements", ())
        if element.get("action_id") == sign_in_messages.LINK_ACTION
    ]
    return str(url)


@contextlib.asynccontextmanager
async def open_stage(tmp_path: Path, env: Mapping[str, str] | None = None) -> AsyncIterator[SignInStage]:
    book = Book({"^who am I there$": WORKER}, default=ASKS)
    async with (
        serve_oauth() as authorization,
        serve_protected(authorization.url) as url,
        OPENAI.serve(book) as model,
        FakeSlack(clock=ScaledClock(), limits=LIMITS) as slack,
    ):
        definition = {
            "name": "desk",
            "description": "Knows the desk.",
            "mcpServers": {"desk": {"url": url, "auth": "oauth"}},
        }
        (tmp_path / "desk.json").write_text(json.dumps(definition))
        variables = {
            **FAST,
            **OPENAI.settings(model),
            "AGENTS_CONFIG": str(tmp_path / "desk.json"),
            "CAIPE_HOME": str(tmp_path / "home"),
        }
        app = build_app(Settings.from_variables(variables), variables)
        async with serve_app(app) as own_url, httpx.AsyncClient(timeout=120, verify=PLAIN) as http:
            on = BotHarness(slack, Client(own_url, http), tmp_path / "bot-home", dict(env or {}))
            yield SignInStage(on, authorization, book)


async def test_a_run_that_needs_a_sign_in_offers_it_to_who_asked_and_works_after_it(tmp_path: Path) -> None:
    async with open_stage(tmp_path) as stage, stage.on.bot():
        on = stage.on
        stage.book.scripts["^who am I there$"] = WITHOUT_TOOLS
        root = await on.slack.say("Who am I?", mention=True)
        await on.wait_for_turns("C1", root)
        offer = await stage.wait_for_offer(sign_in_messages.SIGN_IN_ACTION)
        assert (offer.channel, offer.thread_ts) == ("C1", root)

        await on.slack.click(offer, sign_in_messages.SIGN_IN_ACTION)
        link = await stage.wait_for_offer(sign_in_messages.PASTE_ACTION)
        address = await stage.open_link(link, "ada")
        view = await on.open_modal(link, sign_in_messages.PASTE_ACTION)
        assert not await on.slack.submit(view, {"address": address})
        done = await stage.wait_for_offer(blocks.RETRY_ACTION)
        assert "You are signed in to *desk*" in str(done.all_blocks)
        assert await stage.login_state("first@example.com") is not None
        assert await stage.login_state("second@example.com") is None

        stage.book.scripts["^who am I there$"] = WORKER
        await on.slack.click(done, blocks.RETRY_ACTION)
        messages = await on.wait_for_turns("C1", root, 2)
        assert join_texts(messages[-1:]) == "signed in as ada"
        assert len(stage.offers(sign_in_messages.SIGN_IN_ACTION)) == 1
        assert stage.offers(sign_in_messages.SIGN_IN_ACTION, "U2") == []
        sent = str([call.params for call in on.slack.calls])
        assert not any(secret in sent for secret in stage.authorization.secrets)


async def test_nobody_is_signed_in_with_a_link_that_was_passed_on(tmp_path: Path) -> None:
    async with open_stage(tmp_path) as stage, stage.on.bot():
        on = stage.on
        links = {}
        for user in ("U1", "U2"):
            root = await on.slack.say("Who am I?", user=user, mention=True)
            await on.slack.click(
                await stage.wait_for_offer(sign_in_messages.SIGN_IN_ACTION, user),
                sign_in_messages.SIGN_IN_ACTION,
                user,
            )
            links[user] = await stage.wait_for_offer(sign_in_messages.PASTE_ACTION, user)
            await on.wait_for_turns("C1", root)
        victims_address = await stage.open_link(links["U1"], "victim")  # U1 has sent U2 the link

        view = await on.open_modal(links["U2"], sign_in_messages.PASTE_ACTION, "U2")
        wrong_sign_in = await on.slack.submit(view, {"address": victims_address}, "U2")
        assert "not the address of this sign-in" in str(wrong_sign_in)

        stolen = await on.open_modal(links["U1"], sign_in_messages.PASTE_ACTION, "U1")
        wrong_person = await on.slack.submit(stolen, {"address": victims_address}, "U2")
        assert "begun elsewhere" in str(wrong_person)

        for pasted in ("http://127.0.0.1:8085/callback", "http://[", "no address"):
            refused = await on.slack.submit(stolen, {"address": pasted}, "U1")
            assert "not the address of this sign-in" in str(refused)
        assert stage.authorization.access_tokens == {}
        for principal in ("first@example.com", "second@example.com"):
            assert await stage.login_state(principal) is None


async def test_a_person_who_denies_at_the_authorization_server_is_told(tmp_path: Path) -> None:
    async with open_stage(tmp_path) as stage, stage.on.bot():
        on = stage.on
        await on.slack.slash("login desk")
        [begun] = await on.slack.wait(lambda: on.slack.responses)
        address = await allow(find_url(begun["blocks"]), "ada", "no")
        view = await open_modal_of_response(on, begun)
        refused = await on.slack.submit(view, {"address": address})
        assert "did not sign you in" in str(refused)


async def test_commands_list_sign_in_and_out(tmp_path: Path) -> None:
    async with open_stage(tmp_path) as stage, stage.on.bot():
        on = stage.on
        responses = on.slack.responses

        async def say(command: str) -> Any:
            count = len(responses)
            await on.slack.slash(command)
            await on.slack.wait(lambda: len(responses) > count)
            assert responses[-1]["response_type"] == "ephemeral"
            return responses[-1]

        listed = await say("login")
        assert "*desk*: desk, you are not signed in" in str(listed["blocks"])
        assert sign_in_messages.SIGN_IN_ACTION in str(listed["blocks"])
        begun = await say("login desk")
        address = await allow(find_url(begun["blocks"]), "ada")
        view = await open_modal_of_response(on, begun)
        assert not await on.slack.submit(view, {"address": address})
        await on.slack.wait(lambda: on.ephemeral_texts() == ["You are signed in to desk."])
        assert "*desk*: desk, you are signed in" in str((await say("login"))["blocks"])
        assert "signed out of desk" in (await say("logout desk"))["text"]
        assert (await say("logout desk"))["text"] == "You were not signed in."
        assert "Which agent?" in (await say("logout"))["text"]
        assert "There is no agent nobody" in (await say("login nobody"))["text"]
        assert await stage.login_state("first@example.com") is None


async def open_modal_of_response(on: BotHarness, response: Any) -> Any:
    """Clicks the button of a message that answered a command."""
    message = on.slack._new("C1", None, "ephemeral", text="", blocks=response["blocks"])
    return await on.open_modal(message, sign_in_messages.PASTE_ACTION)


async def test_a_sign_in_is_begun_in_one_process_and_finished_in_another(
    tmp_path: Path, servers: DatabaseServers
) -> None:
    with empty_database(servers) as url:
        async with (
            open_stage(tmp_path, {"DATABASE_URL": url}) as stage,
            connect_bots(stage.on) as (_, second),
        ):
            on = stage.on
            root = await on.slack.say("Who am I?", mention=True)
            offer = await stage.wait_for_offer(sign_in_messages.SIGN_IN_ACTION)
            await on.wait_for_turns("C1", root)
            await on.slack.click(offer, sign_in_messages.SIGN_IN_ACTION)
            link = await stage.wait_for_offer(sign_in_messages.PASTE_ACTION)
            on.slack.receiver = second.socket
            view = await on.open_modal(link, sign_in_messages.PASTE_ACTION)
            await on.slack.submit(view, {"address": await stage.open_link(link, "ada")})
            await stage.wait_for_offer(blocks.RETRY_ACTION)
            state = await eventually(lambda: stage.login_state("first@example.com"), bool)
    assert state
