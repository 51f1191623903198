"""Holds back the tools that a server has changed since it was first trusted, until somebody says yes."""

import logging
from collections.abc import Hashable
from pathlib import Path
from typing import NamedTuple

from ai_platform_engineering.core.agent_definition import McpServer
from ai_platform_engineering.mcp_client.server_environment import is_own_server
from ai_platform_engineering.mcp_client.tool_types import ToolList
from ai_platform_engineering.mcp_client.trust_record import ToolVersion, TrustFile, TrustRecord

log = logging.getLogger(__name__)


class CheckedTools(NamedTuple):
    """A tool list after the check: what may be offered, and the names of the tools that are held."""

    offered: ToolList
    held_names: tuple[str, ...]


class ToolTrust:
    """The trust in one server's tools; it follows its file, in which other processes may approve tools."""

    def __init__(self, folder: Path | None, name: str, server: McpServer) -> None:
        """Without a folder, and for the servers of this package, every tool is trusted."""
        self._name = name
        self._file: TrustFile | None = None
        # Our own servers change with this program, which is trusted as a whole.
        if folder is not None and not is_own_server(server):
            self._file = TrustFile(folder, name, server)
        self._record: TrustRecord | None = None
        self._version: Hashable = ()  # no file has this one
        self._versions: tuple[ToolList, dict[str, ToolVersion]] | None = None
        self._checked: tuple[ToolList, Hashable, CheckedTools] | None = None

    @property
    def is_active(self) -> bool:
        return self._file is not None

    @property
    def version(self) -> Hashable:
        """Changes when the record has changed."""
        if self._file is None:
            return None
        return self._file.version

    def check(self, tool_list: ToolList) -> CheckedTools:
        """Which of these tools are trusted; all of them when the server was never seen before."""
        record = self._read_record()
        if record is None:
            return CheckedTools(tool_list, ())
        if self._checked and self._checked[0] is tool_list and self._checked[1] == self._version:
            return self._checked[2]
        versions = self._compute_versions(tool_list)
        trusted = [tool for tool in tool_list.tools if record.trusts(tool.name, versions[tool.name])]
        trusted_names = {tool.name for tool in trusted}
        held_names = tuple(name for name in tool_list.tool_names() if name not in trusted_names)
        checked = CheckedTools(tool_list.model_copy(update={"tools": tuple(trusted)}), held_names)
        self._checked = (tool_list, self._version, checked)
        return checked

    def note_tools(self, tool_list: ToolList) -> None:
        """Writes down what the server shows now; writes a file, so it is called in a thread."""
        if self._file is None:
            return
        try:
            self._file.note_tools(self._compute_versions(tool_list))
        except OSError as error:
            log.warning(
                "mcp %s: what is trusted of it cannot be kept (%s): a change is not noticed after a restart",
                self._name,
                error.strerror,
            )
            self._keep_in_memory(tool_list)

    def _compute_versions(self, tool_list: ToolList) -> dict[str, ToolVersion]:
        if self._versions is None or self._versions[0] is not tool_list:
            versions = {tool.name: ToolVersion.of(tool) for tool in tool_list.tools}
            self._versions = (tool_list, versions)
        return self._versions[1]

    def _keep_in_memory(self, tool_list: ToolList) -> None:
        """Without a file, changes are still noticed while this process lives."""
        record = self._record or TrustRecord(server=self._name)
        noted = record.with_held(self._compute_versions(tool_list))
        if self._record is None:
            noted = noted.with_approved({version.digest for version in noted.held.values()})
        self._record = noted
        self._version = self.version

    def _read_record(self) -> TrustRecord | None:
        if self._file is None:
            return None
        version = self._file.version
        if version != self._version:
            self._record = self._file.read()
            self._version = version
        return self._record
