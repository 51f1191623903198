"""Signs a person in to an agent's hosted tool server: in a browser here, in one elsewhere, or on a device."""

import asyncio
import webbrowser
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import click

from ai_platform_engineering.a2a.rest_client import RestApi
from ai_platform_engineering.cli.loopback_redirect import LoopbackRedirect
from ai_platform_engineering.core.display_text import reveal_line
from ai_platform_engineering.core.errors import CaipeError

_MAX_POLLS = 2000  # a device sign-in ends by itself long before


class AgentLogin:
    """The sign-in of the person at this terminal; the server that uses the tokens gets and stores them."""

    def __init__(self, api: RestApi, agent: str, server: str | None) -> None:
        self._api = api
        self._path = f"/v1/agents/{quote(agent, safe='')}/login"
        self._body = {} if server is None else {"server": server}

    async def use_browser(self, port: int) -> str:
        """Opens the browser of this machine and waits for it; the name of the server. Raises CaipeError.

        Without a browser the person opens the address elsewhere, or uses a code where that is offered.
        """
        async with LoopbackRedirect(port) as redirect:
            sign_in = await self._begin(redirect_uri=redirect.url)
            url = sign_in["authorization_url"]
            browser = await asyncio.to_thread(_find_browser)
            if browser is not None:
                click.echo(f"Sign in with the browser. If it does not open, open this address:\n\n  {url}\n")
                # A browser in the terminal is open until the person has signed in.
                opening = asyncio.create_task(asyncio.to_thread(browser.open, url))
                answer = await redirect.wait_for(sign_in["state"])
                await opening
                return await self._finish(answer)
        if sign_in["has_device_flow"]:
            return await self.use_device()
        return await self._paste(sign_in)

    async def paste_address(self, port: int) -> str:
        """The person opens the address on any machine, and pastes the one that the browser ends at."""
        return await self._paste(await self._begin(redirect_uri=f"http://127.0.0.1:{port or 8085}/callback"))

    async def use_device(self) -> str:
        """The person enters a code on any device."""
        sign_in = await self._begin(flow="device")
        uri = sign_in["verification_uri_complete"] or sign_in["verification_uri"]
        click.echo(f"Open {reveal_line(uri)} on any device and enter the code {sign_in['user_code']}.")
        interval = float(sign_in["interval"])
        for _ in range(_MAX_POLLS):
            await asyncio.sleep(interval)
            answer = await self._api("POST", f"{self._path}/poll", {"state": sign_in["state"]})
            if "interval" not in answer:
                return str(answer["server"])
            interval = float(answer["interval"])
        raise CaipeError("Nobody has entered the code. Begin again.")

    async def sign_out(self) -> list[str]:
        """The servers that the person was signed in to."""
        server = self._body.get("server")
        query = f"?server={quote(server, safe='')}" if server else ""
        answer = await self._api("DELETE", f"{self._path}{query}")
        return [str(name) for name in answer["signed_out"]]

    async def _begin(self, **options: str) -> Any:
        return await self._api("POST", self._path, {**self._body, **options})

    async def _paste(self, sign_in: Any) -> str:
        click.echo(f"Open this address in a browser and sign in:\n\n  {sign_in['authorization_url']}\n")
        click.echo("The browser then goes to an address on 127.0.0.1, where it may show an error.")
        location = await asyncio.to_thread(click.prompt, "Paste that address here")
        answer = read_redirect(location)
        if answer.get("state") != sign_in["state"]:
            raise CaipeError("This is not the address of this sign-in. Begin again.")
        return await self._finish(answer)

    async def _finish(self, answer: dict[str, str]) -> str:
        signed_in = await self._api("POST", f"{self._path}/finish", answer)
        return str(signed_in["server"])


def read_redirect(location: str) -> dict[str, str]:
    """What an authorization server wrote into the address that it sent the browser to."""
    query = parse_qs(urlsplit(location.strip()).query)
    names = ("state", "code", "iss", "error")
    return {name: query[name][0] for name in names if name in query}


def _find_browser() -> webbrowser.BaseBrowser | None:
    try:
        return webbrowser.get()
    except webbrowser.Error:
        return None
