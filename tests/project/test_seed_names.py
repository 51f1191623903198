"""The names that the specification keeps do the work: take one off the path and the stream is wrong."""

import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest

from ai_platform_engineering.core.events import Answered, AnyEvent, Failed
from ai_platform_engineering.core.transcript import Transcript
from ai_platform_engineering.multi_agents.platform_engineer import deep_agent
from ai_platform_engineering.multi_agents.platform_engineer.protocol_bindings.a2a import (
    agent,
    agent_executor,
    main,
    server_lifecycle,
)
from ai_platform_engineering.runtime.runs.turn import Turn as RunTurn
from tests.support.scenarios import run_scripted_system, token, version_team


async def assert_the_stream_is_right() -> None:
    """A delegation from the model's call to the bytes: its words, its result and its end."""
    value = token()
    script, argocd = version_team(value, "I ask Argo CD.")
    async with run_scripted_system(script, argocd) as stage:
        stream = await stage.ask()
    assert stream.notifications == [
        "🔧 Supervisor: Calling Agent Argocd...\n",
        "🔧 Argocd: Calling tool: Version_Service__Version\n",
        "✅ Argocd: Tool Version_Service__Version completed\n",
        "✅ Supervisor: Argocd completed\n",
    ]
    assert stream.streamed_texts == ["I ask Argo CD.", f"It runs {value}"]
    assert stream.answer == f"It runs {value}"
    assert stream.states[-1] == "completed"


class NoGraph(deep_agent.PlatformEngineerDeepAgent):
    """A supervisor that was given neither agents nor tools."""

    def __init__(self, settings: Any, *, model: Any = None, checkpointer: Any = None, **_: Any) -> None:
        super().__init__(settings, model=model, checkpointer=checkpointer)


class NoBinding(agent.AIPlatformEngineerA2ABinding):
    """Answers without the graph."""

    async def stream(self, turn: RunTurn, transcript: Transcript) -> AsyncIterator[AnyEvent]:
        yield Answered(text="Not from the graph.", trace_id=turn.trace_id)


class NoExecutor(agent_executor.AIPlatformEngineerA2AExecutor):
    """Ends every run without asking the binding."""

    async def run_turn(self, turn: RunTurn) -> None:
        await self._log.append(
            turn.row.run_id, turn.row.epoch, [Failed(message="Nobody drives.", trace_id=turn.trace_id)]
        )


class NoState(agent_executor.StreamState):
    """Keeps only what ends a run."""

    async def write(self, event: AnyEvent) -> None:
        if isinstance(event, Answered | Failed):
            await super().write(event)


# The module that uses the name, the name, and what stands there instead.
PATH = [
    (main, "PlatformEngineerDeepAgent", NoGraph),
    (server_lifecycle, "AIPlatformEngineerA2ABinding", NoBinding),
    (server_lifecycle, "AIPlatformEngineerA2AExecutor", NoExecutor),
    (agent_executor, "StreamState", NoState),
]


async def test_the_stream_is_right_with_every_name_in_its_place() -> None:
    await assert_the_stream_is_right()


@pytest.mark.parametrize(("module", "name", "other"), PATH, ids=[name for _, name, _ in PATH])
async def test_the_stream_is_wrong_without(
    module: Any, name: str, other: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, name, other)
    with pytest.raises(AssertionError):
        await assert_the_stream_is_right()
    monkeypatch.undo()
    await assert_the_stream_is_right()


def test_the_names_are_where_the_specification_says() -> None:
    package = "ai_platform_engineering.multi_agents.platform_engineer"
    assert deep_agent.AIPlatformEngineerMAS is deep_agent.PlatformEngineerDeepAgent
    assert deep_agent.PlatformEngineerDeepAgent.__module__ == f"{package}.deep_agent"
    assert agent.AIPlatformEngineerA2ABinding.__module__ == f"{package}.protocol_bindings.a2a.agent"
    assert (
        agent_executor.AIPlatformEngineerA2AExecutor.__module__
        == f"{package}.protocol_bindings.a2a.agent_executor"
    )
    assert agent_executor.StreamState.__module__ == f"{package}.protocol_bindings.a2a.agent_executor"


@pytest.mark.sample(1)
@pytest.mark.parametrize("module", ["deep_agent", "protocol_bindings.a2a.main"])
def test_importing_the_supervisor_imports_no_providers_package(
    module: str, guarded_environment: dict[str, str]
) -> None:
    names = ("anthropic", "langchain_anthropic", "langchain_openai", "openai")
    code = (
        f"import sys, ai_platform_engineering.multi_agents.platform_engineer.{module};"
        f" print(sorted(set({names}) & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=guarded_environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr
