"""`caipe chat` and `caipe ask` in a real pseudo-terminal, and the commands that look at runs, agents and settings."""

import secrets

from langchain_core.tools import BaseTool, tool

from tests.answering import Versions, Waiting
from tests.fakes.script import Call, Say, Script, Turn
from tests.harness import agent, supervisor
from tests.processes import run
from tests.terminals import in_terminal

CTRL_C, CTRL_D = "\x03", "\x04"
PROMPT = "›"  # what is typed before it stands there is a line of the terminal's, not a key for the program


async def test_a_chat_streams_an_answer_and_remembers_the_conversation() -> None:
    version = Versions()
    async with supervisor(version.script, tools=[version.tool]) as client, in_terminal("caipe", "chat", "--url", client.url) as screen:
        at = await screen.shows("Ask in plain words")
        screen.type("Which version?\r")
        at = await screen.shows("Supervisor: Calling tool: Version", at)
        at = await screen.shows("Supervisor: Tool Version completed", at)
        at = await screen.shows(PROMPT, await screen.shows(version.answer, at))
        screen.type("And again?\r")
        at = await screen.shows("Calling tool: Version", at)
        at = await screen.shows(PROMPT, await screen.shows(version.answer, at))
        screen.type("/context\r")
        await screen.shows(PROMPT, await screen.shows(r"[0-9a-f]{8}-[0-9a-f]{4}", at))
        screen.type(CTRL_D)
        assert await screen.ended() == 0
        listed = (await client.call("ListTasks", {}))["result"]["tasks"]
    assert len(listed) == 2
    assert len({task["contextId"] for task in listed}) == 1


async def test_ctrl_c_stops_the_turn_and_not_the_session() -> None:
    waiting = Waiting()
    script = Script(Turn(Say("I wait."), Call(waiting.tool.name, {})), Turn(Say("Never said.")))
    async with supervisor(script, tools=[waiting.tool]) as client, in_terminal("caipe", "chat", "--url", client.url) as screen:
        await screen.shows("Ask in plain words")
        screen.type("Wait.\r")
        at = await screen.shows("Supervisor: Calling tool")
        screen.type(CTRL_C)
        at = await screen.shows(PROMPT, await screen.shows("Stopped", at))
        screen.type("/help\r")
        await screen.shows(PROMPT, await screen.shows("/quit leaves", at))
        screen.type("/quit\r")
        assert await screen.ended() == 0
        (task,) = (await client.call("ListTasks", {}))["result"]["tasks"]
    assert task["status"]["state"] == "TASK_STATE_CANCELED"


async def test_a_plan_is_shown_with_its_steps_and_hostile_text_is_inert() -> None:
    evil = f"{secrets.token_hex(4)}\x1b]0;owned\x07\x1b[2J\u202ereversed"
    todos = [{"agent": "argocd", "title": "Get the version"}, {"agent": "argocd", "title": "Compare it"}]
    script = Script(
        Turn(Say("I plan."), Call("write_todos", {"title": "Versions", "todos": todos})),
        Turn(Call("task", {"description": "look", "subagent_type": "argocd", "step_id": "step-1"})),
        Turn(Say(f"# Done\n\n{evil}\n\n- one\n- two")),
    )
    argocd = agent("argocd", Script(Turn(Say("It is new."))))
    async with supervisor(script, agents=[argocd]) as client, in_terminal("caipe", "chat", "--url", client.url) as screen:
        await screen.shows("Ask in plain words")
        screen.type("Compare versions.\r")
        await screen.shows(r"Execution Plan: Versions")
        await screen.shows(r"\[Argocd\] Get the version")
        await screen.shows(PROMPT, await screen.shows("reversed"))
        screen.type(CTRL_D)
        assert await screen.ended() == 0
    assert "\x1b]0;owned" not in screen.raw
    assert "\u202e" not in screen.raw


async def test_ask_on_a_terminal_shows_the_answer_once() -> None:
    version = Versions()
    async with (
        supervisor(version.script, tools=[version.tool]) as client,
        in_terminal("caipe", "ask", "--url", client.url, "Which version?") as screen,
    ):
        await screen.shows(version.answer)
        assert await screen.ended() == 0
    assert screen.text.count(version.answer) == 1


async def test_show_tells_of_a_run_afterwards() -> None:
    version, argument = Versions(), secrets.token_hex(4)
    argocd = agent("argocd", Script(Turn(Call("look", {"where": argument})), Turn(Say("found"))), looking())
    script = Script(Turn(Call("task", {"description": "look", "subagent_type": "argocd"})), Turn(Say("Found {{tool:argocd}}.")))
    async with supervisor(script, tools=[version.tool], agents=[argocd]) as client:
        seen = await client.ask("Look.")
        done = await run("caipe", "show", seen.task_id, "--url", client.url)
        unknown = await run("caipe", "show", "nobody", "--url", client.url)
    assert done.code == 0, done.err
    assert "completed" in done.out
    assert "Supervisor: Agent Argocd" in done.out
    assert "Argocd: Look" in done.out
    assert argument in done.out
    assert "Found found." in done.out
    assert (unknown.code, "Traceback" in unknown.err) == (1, False)


def looking() -> BaseTool:
    @tool
    async def look(where: str) -> str:
        """Looks."""
        return f"nothing at {where}"

    return look


async def test_agents_and_doctor_say_what_there_is_and_what_is_missing() -> None:
    listed = await run("caipe", "agents", env={"COLUMNS": "200"})
    assert listed.code == 0, listed.err
    assert "netutils" in listed.out
    assert "ARGOCD_TOKEN" in listed.out
    tried = await run("caipe", "agents", "test", "netutils")
    assert (tried.code, "check_port" in tried.out) == (0, True), tried.err
    nobody = await run("caipe", "agents", "test", "nobody")
    assert (nobody.code, "netutils" in nobody.err) == (1, True)
    secret = secrets.token_hex(8)
    examined = await run("caipe", "doctor", env={"A2A_AUTH_SHARED_KEY": secret, "LLM_MODEL": "openai:gpt-5-mini"})
    assert examined.code == 1
    assert "OPENAI_API_KEY is not set" in examined.out
    assert secret not in examined.out


async def test_without_a_server_a_question_is_answered_by_one_started_for_it() -> None:
    done = await run("caipe", "ask", "what does 10.0.0.0/22 contain?")
    assert done.code == 0, done.err
    assert "1,022" in done.out
    assert "offline router" in done.err
    assert "Netutils: Calling tool: Cidr_Info" in done.err
