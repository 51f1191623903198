"""An MCP server whose tool returns the files of a folder as images; it speaks stdio.

python mcp_pictures.py FOLDER     notes each call in FOLDER/calls
"""

import base64
import sys
from pathlib import Path
from typing import Any

from mcp.server.mcpserver import MCPServer
from mcp.types import (
    BlobResourceContents,
    EmbeddedResource,
    ImageContent,
    TextContent,
    ToolAnnotations,
)

FOLDER = Path(sys.argv[1])
server = MCPServer("pictures")


def read(name: str) -> tuple[str, str]:
    """The data of a file, and the type that its name says."""
    content = (FOLDER / name).read_bytes()
    return base64.b64encode(content).decode(), f"image/{Path(name).suffix[1:]}"


@server.tool()
async def draw(files: list[str], embedded: bool = False) -> list[Any]:
    """Draws pictures."""
    with (FOLDER / "calls").open("a") as calls:
        calls.write(f"{' '.join(files)}\n")
    blocks: list[Any] = [TextContent(text="Drawn:")]
    for name in files:
        data, mime_type = read(name)
        if embedded:
            content = BlobResourceContents(uri=f"pictures://{name}", mime_type=mime_type, blob=data)
            blocks.append(EmbeddedResource(resource=content))
        else:
            blocks.append(ImageContent(data=data, mime_type=mime_type))
    return blocks


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
async def look() -> str:
    """Looks around."""
    return "Nothing."


@server.resource("pictures://stored", mime_type="image/png", description="The stored picture.")
async def stored() -> bytes:
    return (FOLDER / "stored.png").read_bytes()


if __name__ == "__main__":
    server.run("stdio")
