"""An agent whose tool server draws pictures, on the model of any provider, in the supervisor's process or as
a service; and the images that a provider's server receives."""

import base64
import contextlib
import secrets
import struct
import zlib
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.multi_agents.platform_engineer.protocol_bindings.a2a.agent_service import (
    build_service,
)
from tests.support.agent_services import (
    CastingByTools,
    Where,
    run_supervisor,
    write_agent_definition,
)
from tests.support.command_process import forked_python
from tests.support.fakes.mcp_servers import FAKES, network_guard_environment
from tests.support.fakes.script import Call, Casting, Say, Script, Turn
from tests.support.fakes.serving import ModelServer
from tests.support.harness import FAST, Client, serve_app
from tests.support.providers import OPENAI, Provider

NAME = "artist"
SEEING_MODELS = {
    "openai": "openai:gpt-4.1",
    "responses": "openai:gpt-4.1",
    "anthropic": "anthropic:claude-opus-5",
}
DELEGATING = Script(
    Turn(Call("task", {"description": "{{user}}", "subagent_type": NAME})), Turn(Say("{{tool:artist}}"))
)


@dataclass(frozen=True, slots=True)
class SentImage:
    """An image in a request: where it is, its type and its base64 data."""

    place: str
    mime_type: str
    data: str


@dataclass
class PictureAgent:
    """`script`: of the agent. `model`: its name with the provider's, which says whether it reads images."""

    folder: Path
    script: Casting
    provider: Provider = OPENAI
    where: Where = "in-process"
    model: str = ""
    variables: dict[str, str] = field(default_factory=dict)

    @property
    def casting(self) -> Casting:
        return CastingByTools(DELEGATING, self.script)

    @property
    def calls(self) -> list[str]:
        """The files of each call of the tool."""
        file = self.folder / "calls"
        return file.read_text().splitlines() if file.exists() else []

    def write_image(self, name: str, size: int = 500) -> str:
        """Writes a file of about so many bytes; its content in base64."""
        content = make_png(size)
        (self.folder / name).write_bytes(content)
        return base64.b64encode(content).decode()

    def write_definition(self) -> None:
        command, *args = forked_python(str(FAKES / "mcp_pictures.py"), str(self.folder))
        server = {"command": command, "args": args, "env": network_guard_environment()}
        write_agent_definition(self.folder / "agents", NAME, server, tools={"allow": ["*"]})

    @contextlib.asynccontextmanager
    async def run(self) -> AsyncIterator[tuple[ModelServer, Client]]:
        """The supervisor with the agent; reentrant, with what the folder holds."""
        self.write_definition()
        async with self.provider.serve(self.casting) as model, contextlib.AsyncExitStack() as stack:
            variables = {
                **self.provider.settings(model),
                "LLM_MODEL": self.model or SEEING_MODELS[self.provider.name],
                **self.variables,
            }
            if self.where == "remote":
                url = await stack.enter_async_context(self._serve(variables))
                variables |= {"DISTRIBUTED_AGENTS": NAME, "ARTIST_AGENT_URL": url}
            yield model, await stack.enter_async_context(run_supervisor(self.folder, model, **variables))

    @contextlib.asynccontextmanager
    async def _serve(self, variables: Mapping[str, str]) -> AsyncIterator[str]:
        environment = {
            **FAST,
            "AGENTS_CONFIG": str(self.folder / "agents"),
            "CAIPE_HOME": str(self.folder / "service"),
            "HOME": str(self.folder),
            "TMPDIR": str(self.folder),
            **variables,
        }
        async with serve_app(build_service(NAME, Settings.from_variables(environment), environment)) as url:
            yield url


def drawing(*files: str, **more: Any) -> Script:
    """An agent that draws these, and repeats what the tool says."""
    return Script(Turn(Call("draw", {"files": list(files), **more})), Turn(Say("{{tool:draw}}")))


def list_images(body: Mapping[str, Any]) -> list[SentImage]:
    """The images in the body of a request, of any provider."""
    images: list[SentImage] = []
    for item in body.get("messages") or body.get("input") or ():
        role = item.get("role") or item.get("type")
        content = item.get("output") or item.get("content")
        images += _list_images(str(role), content)
    return images


def _list_images(place: str, content: Any) -> Iterator[SentImage]:
    for block in content if isinstance(content, list) else ():
        match block.get("type"):
            case "tool_result":
                yield from _list_images("tool_result", block.get("content"))
            case "image":
                yield SentImage(place, block["source"]["media_type"], block["source"]["data"])
            case "image_url" | "input_image" as kind:
                url = block["image_url"]["url"] if kind == "image_url" else block["image_url"]
                mime_type, _, data = url.removeprefix("data:").partition(";base64,")
                yield SentImage(place, mime_type, data)


def make_png(size: int) -> bytes:
    """A PNG file of about so many bytes, whose pixels are noise."""
    width = max(1, size // 3)
    rows = b"\0" + secrets.token_bytes(3 * width)
    header = struct.pack(">IIBBBBB", width, 1, 8, 2, 0, 0, 0)
    chunks = (_chunk(b"IHDR", header), _chunk(b"IDAT", zlib.compress(rows, 0)), _chunk(b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def _chunk(kind: bytes, content: bytes) -> bytes:
    checksum = zlib.crc32(kind + content)
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", checksum)
