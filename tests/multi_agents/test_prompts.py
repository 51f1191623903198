"""Prompts: what a model is told, and what operators change of it with `PROMPT_CONFIG`."""

from pathlib import Path
from typing import Any

import pytest

from ai_platform_engineering.core.agent_definition import AgentDefinition
from ai_platform_engineering.core.errors import ConfigurationError
from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.multi_agents.platform_engineer.deep_agent import PlatformEngineerDeepAgent
from ai_platform_engineering.multi_agents.platform_engineer.local_agents import LocalAgent
from ai_platform_engineering.multi_agents.platform_engineer.prompts import UNTRUSTED_RESULTS
from tests.support.fakes.model import ScriptedChatModel
from tests.support.fakes.script import Call, Say, Script, Turn
from tests.support.graph_runner import GraphConversation, scripted_model


def config(text: str | bytes) -> dict[str, str]:
    """A prompt file and the variable that names it."""
    path = Path("prompts.yaml").absolute()
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return {"PROMPT_CONFIG": str(path)}


def member(name: str, prompt: str = "") -> tuple[LocalAgent, ScriptedChatModel]:
    model = ScriptedChatModel(script=Script(Turn(Say("It is up."))))
    return LocalAgent(
        AgentDefinition(name=name, description=f"Knows {name}.", prompt=prompt), model=model
    ), model


async def supervisor_system(env: dict[str, str] | None = None, agents: Any = ()) -> str:
    """The system prompt that the supervisor's model gets."""
    model = scripted_model(Turn(Say("Hello.")))
    await GraphConversation(model, agents, env=env or {}).ask()
    return model.requests[0].system


async def agent_system(env: dict[str, str], prompt: str = "", name: str = "argocd") -> str:
    """The system prompt that a sub-agent's model gets."""
    outer, inner = member(name, prompt)
    model = scripted_model(
        Turn(Call("task", {"description": "Up?", "subagent_type": name})), Turn(Say("Done."))
    )
    await GraphConversation(model, [outer], env=env).ask()
    system, rule, rest = inner.requests[0].system.partition(f"\n\n{UNTRUSTED_RESULTS}")
    assert (rule != "", rest) == (True, "")
    return system


# --- without a file -------------------------------------------------------------------------------


async def test_the_supervisor_is_told_who_it_is_how_to_plan_and_how_to_answer() -> None:
    system = await supervisor_system()
    assert system.startswith("You are AI Platform Engineer: ")
    assert "write_todos" in system
    assert "never invent" in system


async def test_the_supervisor_is_told_which_agents_there_are() -> None:
    system = await supervisor_system(agents=[member("argocd")[0], member("jira")[0]])
    assert "- argocd: Knows argocd.\n- jira: Knows jira." in system
    assert "No domain agents are available" not in system


async def test_a_supervisor_without_agents_is_told_so() -> None:
    assert "No domain agents are available" in await supervisor_system()


@pytest.mark.parametrize("structured", [True, False])
async def test_a_structured_answer_is_asked_for_only_when_it_is_on(structured: bool) -> None:
    system = await supervisor_system({"USE_STRUCTURED_RESPONSE": str(structured)})
    assert ("PlatformEngineerResponse" in system) is structured


async def test_an_agent_without_a_prompt_is_told_what_it_is() -> None:
    assert await agent_system({}) == "You are the argocd agent. Knows argocd."


async def test_an_agents_own_prompt_is_what_it_is_told() -> None:
    assert await agent_system({}, "You only read.") == "You only read."


# --- with a file ----------------------------------------------------------------------------------


async def test_name_description_and_additions_reach_the_supervisor() -> None:
    env = config(
        "name: Ops Helper\ndescription: you keep {things} running.\n"
        "additions: |\n  Answer in rhymes.\n  Use 100% of {braces}.\n"
    )
    system = await supervisor_system(env)
    assert system.startswith("You are Ops Helper: you keep {things} running.")
    assert system.endswith("Answer in rhymes.\nUse 100% of {braces}.")
    assert "write_todos" in system


@pytest.mark.parametrize(
    "text",
    [
        "agent_prompts:\n  argocd: You only read, {always}.\n",
        "agent_prompts:\n  argocd:\n    system_prompt: You only read, {always}.\n",
        "agent_prompts:\n  jira: You write.\n  argocd: {system_prompt: 'You only read, {always}.'}\n",
    ],
    ids=["text", "mapping", "both"],
)
async def test_an_agents_prompt_in_the_file_replaces_its_own(text: str) -> None:
    env = config(text)
    assert await agent_system(env, "You may write.") == "You only read, {always}."


async def test_agent_prompts_leave_other_agents_and_the_supervisor_alone() -> None:
    env = config("agent_prompts:\n  argocd: You only read.\n")
    assert await agent_system(env, "You may write.", name="jira") == "You may write."
    assert await supervisor_system(env) == await supervisor_system()


@pytest.mark.parametrize("text", ["", "# nothing yet\n", "{}", "---\n"])
async def test_an_empty_file_changes_nothing(text: str) -> None:
    assert await supervisor_system(config(text)) == await supervisor_system()


# --- a file that cannot be used -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("aditions: oops\n", "aditions"),
        ("name: [1, 2]\n", "name"),
        ("agent_prompts: [argocd]\n", "agent_prompts"),
        (
            "agent_prompts: {argocd: [1]}\n",
            "agent_prompts.argocd: a prompt is a text, or a mapping with the key system_prompt.",
        ),
        (
            "agent_prompts: {argocd: {prompt: Read., system_prompt: Write.}}\n",
            "agent_prompts.argocd: unknown key prompt; the only key is system_prompt.",
        ),
        (
            "agent_prompts: {argocd: {}}\n",
            "agent_prompts.argocd: system_prompt must be there, and a text.",
        ),
        (
            "agent_prompts: {argocd: {system_prompt: [1]}}\n",
            "agent_prompts.argocd: system_prompt must be there, and a text.",
        ),
        ("just some words\n", "prompts.yaml"),
        ("- a\n- list\n", "prompts.yaml"),
        ("name: {unclosed\n", "YAML"),
        ("name: !!python/object/apply:os.getcwd []\n", "YAML"),
        (b"name: \xff\xfe\n", "prompts.yaml"),
    ],
    ids=[
        "unknown key",
        "wrong kind",
        "list for a map",
        "wrong kind inside",
        "unknown key inside",
        "nothing inside",
        "wrong kind of a prompt",
        "words",
        "list",
        "not YAML",
        "YAML that runs code",
        "not UTF-8",
    ],
)
def test_a_file_that_cannot_be_used_is_refused_by_name(text: str | bytes, named: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        PlatformEngineerDeepAgent(Settings.from_variables(config(text)))
    assert "PROMPT_CONFIG" in str(caught.value)
    assert named in str(caught.value)


def test_an_unknown_key_is_answered_with_the_known_ones() -> None:
    with pytest.raises(ConfigurationError, match="name, description, additions, agent_prompts"):
        PlatformEngineerDeepAgent(Settings.from_variables(config("aditions: oops\n")))


@pytest.mark.parametrize("path", ["missing.yaml", "."], ids=["missing", "folder"])
def test_a_file_that_cannot_be_read_is_refused_by_name(path: str) -> None:
    with pytest.raises(ConfigurationError, match=r"PROMPT_CONFIG: .*cannot be read"):
        PlatformEngineerDeepAgent(Settings.from_variables({"PROMPT_CONFIG": path}))
