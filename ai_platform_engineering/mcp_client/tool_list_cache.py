"""Tool lists on disk, so that an agent can be built without starting its servers.

A file that cannot be read counts as none.
"""

import asyncio
import hashlib
import json
import logging
from collections.abc import Mapping
from pathlib import Path

from pydantic import ValidationError

from ai_platform_engineering.core.agent_definition import McpServer
from ai_platform_engineering.core.private_files import write_private_file
from ai_platform_engineering.mcp_client.server_environment import find_executable, server_key
from ai_platform_engineering.mcp_client.tool_types import ToolList

log = logging.getLogger(__name__)

_FORMAT = 3
_MAX_FILE_BYTES = 16 * 1024 * 1024


class ToolListCache:
    """A cache of tool lists.

    Its key is the server with its credentials and the file of its program: a new version asks for a new list.
    """

    def __init__(self, folder: Path | None, environment: Mapping[str, str]) -> None:
        self._folder = folder
        self._environment = environment

    def load(self, server: McpServer) -> ToolList | None:
        if self._folder is None:
            return None
        path = self._make_path(self._folder, server)
        try:
            if path.stat().st_size > _MAX_FILE_BYTES:
                return None
            return ToolList.model_validate_json(path.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValidationError) as error:
            log.debug("mcp: a cached tool list is not readable: %s", type(error).__name__)
            return None

    async def store(self, server: McpServer, tool_list: ToolList) -> None:
        if self._folder is not None:
            await asyncio.to_thread(self._write, self._folder, server, tool_list)

    def _write(self, folder: Path, server: McpServer, tool_list: ToolList) -> None:
        try:
            write_private_file(self._make_path(folder, server), tool_list.model_dump_json().encode())
        except OSError as error:
            log.warning("mcp: the tool list could not be kept in %s: %s", folder, error.strerror)

    def _make_path(self, folder: Path, server: McpServer) -> Path:
        key = json.dumps([_FORMAT, server_key(server), self._program_version(server)])
        return folder / f"tools-{hashlib.sha256(key.encode()).hexdigest()[:40]}.json"

    def _program_version(self, server: McpServer) -> tuple[str, int, int] | None:
        """The path, size and time of the program's file; None for a server without one."""
        if server.command is None:
            return None
        executable = find_executable(server, self._environment)
        if not executable:
            return None
        try:
            status = Path(executable).stat()
        except OSError:
            return None
        return (executable, status.st_size, status.st_mtime_ns)
