"""Sign-ins of Slack's users to hosted tool servers of agents (ADR 0058).

The supervisor binds a sign-in to the person for whom the bot speaks. It is finished with the address at which
the browser ended, sent by that person. Somebody who opens a link that was passed on has this address, and
cannot finish; whoever passed it on could finish, and does not have it. So nobody's account gets attached to
somebody else. A code for another device is not offered: whoever enters one signs somebody else in.
"""

import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import quote

from ai_platform_engineering.a2a.client import A2AClient, RequestRefused, Unreachable
from ai_platform_engineering.a2a.rest_client import RestApi, rest_api_for_client
from ai_platform_engineering.integrations.slack_bot.blocks import Block
from ai_platform_engineering.integrations.slack_bot.bot_store import BotStore
from ai_platform_engineering.integrations.slack_bot.sign_in_messages import (
    PasteMetadata,
    SignInButton,
    browser_blocks,
    can_be_linked,
    offer_blocks,
)
from ai_platform_engineering.integrations.slack_bot.turn_rows import TurnRow

log = logging.getLogger(__name__)

_REDIRECT_URI = "http://127.0.0.1:8085/callback"  # nobody listens there: the person pastes it
_NOT_THIS = "This is not the address of this sign-in. Copy the one that the browser shows at the end."
_TOO_LONG = "The link is too long for Slack. Sign in on the web page, or in a terminal: caipe agents login {}"

# Sends a text and blocks to the person alone.
SendPrivate = Callable[[str, Sequence[Block]], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class SlackSignIns:
    supervisor: A2AClient
    store: BotStore

    async def list_logins(
        self, principal: str, agents: Collection[str] | None = None
    ) -> list[tuple[SignInButton, bool]]:
        """The servers where the person has a login of their own, and whether it is there; of all agents or of
        these. Raises RequestRefused and Unreachable."""
        listed = (await self._api(principal)("GET", "/v1/agents"))["agents"]
        logins: list[tuple[SignInButton, bool]] = []
        for agent in listed:
            for login in agent.get("logins") or ():
                is_personal = login["owner"] == "person"
                if is_personal and (agents is None or agent["name"] in agents):
                    target = SignInButton(str(agent["name"]), str(login["server"]))
                    logins.append((target, login["signed_in_at"] is not None))
        return logins

    async def offer(self, row: TurnRow, agents: Collection[str], send: SendPrivate) -> None:
        """Offers the sign-ins that these agents of a turn lack, once for each turn."""
        try:
            logins = await self.list_logins(row.principal, agents)
        except (RequestRefused, Unreachable) as error:
            log.info("no sign-in is offered: %s", error)
            return
        for login, is_signed_in in logins:
            key = f"sign-in:{row.turn_id}:{login.agent}:{login.server}"
            if not is_signed_in and await self.store.record_if_new(key):
                offered = SignInButton(login.agent, login.server, row.turn_id)
                await send(f"{login.agent} needs a sign-in.", offer_blocks(offered))

    async def begin(
        self, principal: str, target: SignInButton, channel: str, thread_ts: str, send: SendPrivate
    ) -> None:
        """Tells the person how to sign in. Raises RequestRefused and Unreachable."""
        body = {"redirect_uri": _REDIRECT_URI}
        if target.server:
            body["server"] = target.server
        sign_in = await self._api(principal)("POST", _path(target.agent), body)
        server = str(sign_in["server"])
        url = str(sign_in["authorization_url"])
        if not can_be_linked(url):
            raise RequestRefused(_TOO_LONG.format(target.agent))
        metadata = PasteMetadata(
            target.agent, server, target.turn_id, str(sign_in["state"]), channel, thread_ts
        )
        await send(f"Sign in to {server}", browser_blocks(server, url, metadata))

    async def finish(self, principal: str, metadata: PasteMetadata, answer: Mapping[str, str]) -> str:
        """Finishes a sign-in with what the browser brought back; the name of the server.

        Raises RequestRefused and Unreachable.
        """
        if answer.get("state") != metadata.state:
            raise RequestRefused(_NOT_THIS)
        signed_in = await self._api(principal)("POST", f"{_path(metadata.agent)}/finish", dict(answer))
        return str(signed_in["server"])

    async def sign_out(self, principal: str, agent: str) -> list[str]:
        """The servers that the person was signed in to. Raises RequestRefused and Unreachable."""
        answer = await self._api(principal)("DELETE", _path(agent))
        return [str(server) for server in answer["signed_out"]]

    def _api(self, principal: str) -> RestApi:
        return rest_api_for_client(self.supervisor.on_behalf_of(principal))


def _path(agent: str) -> str:
    return f"/v1/agents/{quote(agent, safe='')}/login"
