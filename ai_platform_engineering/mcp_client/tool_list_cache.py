"""Tool lists on disk, so that an agent can be built without starting its servers. Whatever is wrong with a file, it counts as none."""

import asyncio
import contextlib
import hashlib
import json
import logging
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from pydantic import ValidationError

from ai_platform_engineering.core.agent_definition import McpServer
from ai_platform_engineering.mcp_client.server import find_executable, server_key
from ai_platform_engineering.mcp_client.tool_types import ToolList

log = logging.getLogger(__name__)

_FORMAT = 1
_MOST_BYTES = 16 * 1024 * 1024


class ToolListCache:
    """Keyed by server and credentials, and by the program's file: a new version of it asks for a new list."""

    def __init__(self, folder: Path | None, environment: Mapping[str, str]) -> None:
        self._folder, self._environment = folder, environment

    def load(self, server: McpServer) -> ToolList | None:
        if self._folder is None:
            return None
        path = self._path(self._folder, server)
        try:
            if path.stat().st_size > _MOST_BYTES:
                return None
            return ToolList.model_validate_json(path.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValidationError) as error:
            log.debug("mcp: a cached tool list is not readable: %s", type(error).__name__)
            return None

    async def store(self, server: McpServer, listing: ToolList) -> None:
        if self._folder is not None:
            await asyncio.to_thread(self._write, self._folder, server, listing)

    def _write(self, folder: Path, server: McpServer, listing: ToolList) -> None:
        temporary = ""
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=folder, prefix=".tools-")  # readable by its owner alone
            with os.fdopen(handle, "wb") as file:
                file.write(listing.model_dump_json().encode())
            Path(temporary).replace(self._path(folder, server))
        except OSError as error:
            log.warning("mcp: the tool list could not be kept in %s: %s", folder, error.strerror)
            if temporary:
                with contextlib.suppress(OSError):
                    Path(temporary).unlink()

    def _path(self, folder: Path, server: McpServer) -> Path:
        stamp: tuple[str, int, int] | None = None
        if server.command is not None and (found := find_executable(server, self._environment)):
            with contextlib.suppress(OSError):
                status = Path(found).stat()
                stamp = (found, status.st_size, status.st_mtime_ns)
        key = json.dumps([_FORMAT, server_key(server), stamp])
        return folder / f"tools-{hashlib.sha256(key.encode()).hexdigest()[:40]}.json"
