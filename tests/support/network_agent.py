"""An agent with the real netutils server, in-process or as a service, and scripts for its model."""

from dataclasses import dataclass

from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.mcp_client.session_pool import McpSessionPool
from ai_platform_engineering.multi_agents.platform_engineer.local_agents import LocalAgent, McpTools
from ai_platform_engineering.multi_agents.platform_engineer.network_environment import set_network_environment
from tests.support.approving_agent import NotesAgent
from tests.support.command_process import forked_python
from tests.support.fakes.mcp_servers import network_guard_environment
from tests.support.fakes.script import Call, Say, Script, Turn
from tests.support.netutils_client import definition


@dataclass
class NetworkAgent(NotesAgent):
    """Its settings are the supervisor's."""

    def agent(self, sessions: McpSessionPool) -> LocalAgent:
        settings = Settings.from_variables(self.env)
        shipped = definition()
        server = shipped.mcp_servers["netutils"]
        command, *args = forked_python(*server.args)
        started_here = server.model_copy(
            update={"command": command, "args": tuple(args), "env": network_guard_environment()}
        )
        agent = shipped.model_copy(update={"name": self.name, "mcp_servers": {"netutils": started_here}})
        agent = set_network_environment(agent, settings, ())
        return LocalAgent(agent, McpTools(sessions, agent, read_only=settings.people.read_only), self.model)


def delegating(text: str) -> Script:
    """A supervisor's model that chooses the words of the delegation itself."""
    return Script(
        Turn(Call("task", {"description": text, "subagent_type": "desk"}, id="c0")),
        Turn(Say("So: {{tool:desk}}")),
    )


def checking(*calls: Call) -> Script:
    """An agent's model that makes the calls at once, and then answers."""
    return Script(Turn(*calls), Turn(Say("Checked.")))
