"""`caipe chat` and `caipe ask` in a pseudo-terminal, and the commands that show runs, agents and settings."""

import secrets
from typing import Any

import pytest
from langchain_core.tools import BaseTool, tool

from tests.support.asking_agent import DELEGATING, Repos, form_tool, github
from tests.support.dialects import V10
from tests.support.echo_supervisor import BlockingScenario, VersionScenario
from tests.support.fakes.script import Call, Say, Script, Turn
from tests.support.harness import Client, agent, supervisor
from tests.support.processes import invoke_caipe, run_command
from tests.support.terminals import PseudoTerminal, start_in_terminal

CTRL_C, CTRL_D = "\x03", "\x04"
PROMPT = "›"  # what is typed before it stands there is a line of the terminal's, not a key for the program


async def test_a_chat_streams_an_answer_and_remembers_the_conversation() -> None:
    version = VersionScenario()
    async with (
        supervisor(version.script, tools=[version.tool]) as client,
        start_in_terminal("caipe", "chat", "--url", client.url) as screen,
    ):
        at = await screen.wait_for_text("Ask in plain words")
        screen.type("Which version?\r")
        at = await screen.wait_for_text(r"✓ version · \d+\.\d s", at)
        at = await screen.wait_for_text(PROMPT, await screen.wait_for_text(version.answer, at))
        screen.type("And again?\r")
        at = await screen.wait_for_text("✓ version", at)
        at = await screen.wait_for_text(PROMPT, await screen.wait_for_text(version.answer, at))
        screen.type("/context\r")
        await screen.wait_for_text(PROMPT, await screen.wait_for_text(r"[0-9a-f]{8}-[0-9a-f]{4}", at))
        screen.type(CTRL_D)
        assert await screen.wait_for_exit() == 0
        listed = (await client.call("ListTasks", {}))["result"]["tasks"]
    assert len(listed) == 2
    assert len({task["contextId"] for task in listed}) == 1


async def test_ctrl_c_stops_the_turn_and_not_the_session() -> None:
    waiting = BlockingScenario()
    script = Script(Turn(Say("I wait."), Call(waiting.tool.name, {})), Turn(Say("Never said.")))
    async with (
        supervisor(script, tools=[waiting.tool]) as client,
        start_in_terminal("caipe", "chat", "--url", client.url) as screen,
    ):
        await screen.wait_for_text("Ask in plain words")
        screen.type("Wait.\r")
        at = await screen.wait_for_text(r"wait · \d")
        screen.type(CTRL_C)
        at = await screen.wait_for_text(PROMPT, await screen.wait_for_text("Stopped", at))
        screen.type("/help\r")
        await screen.wait_for_text(PROMPT, await screen.wait_for_text("/quit leaves", at))
        screen.type("/quit\r")
        assert await screen.wait_for_exit() == 0
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
    async with (
        supervisor(script, agents=[argocd]) as client,
        start_in_terminal("caipe", "chat", "--url", client.url) as screen,
    ):
        await screen.wait_for_text("Ask in plain words")
        screen.type("Compare versions.\r")
        await screen.wait_for_text(r"Versions \(0 of 2\)")
        await screen.wait_for_text(r"argocd: Get the version")
        await screen.wait_for_text(PROMPT, await screen.wait_for_text("reversed"))
        screen.type(CTRL_D)
        assert await screen.wait_for_exit() == 0
    assert "\x1b]0;owned" not in screen.raw
    assert "\u202e" not in screen.raw


async def test_a_plan_without_a_title_is_headed_without_one() -> None:
    script = Script(Turn(Say("I plan."), Call("write_todos", {"todos": ["Think"]})), Turn(Say("Done.")))
    async with (
        supervisor(script) as client,
        start_in_terminal("caipe", "ask", "--url", client.url, "Plan.") as screen,
    ):
        await screen.wait_for_text("Done.")
        assert await screen.wait_for_exit() == 0
    assert "Plan (0 of 1)" in screen.text


async def test_ask_on_a_terminal_shows_the_answer_once() -> None:
    version = VersionScenario()
    async with (
        supervisor(version.script, tools=[version.tool]) as client,
        start_in_terminal("caipe", "ask", "--url", client.url, "Which version?") as screen,
    ):
        await screen.wait_for_text(version.answer)
        assert await screen.wait_for_exit() == 0
    assert "\n".join(screen.screen.lines).count(version.answer) == 1


async def test_show_tells_of_a_run_afterwards() -> None:
    version, argument = VersionScenario(), secrets.token_hex(4)
    argocd = agent(
        "argocd", Script(Turn(Call("look", {"where": argument})), Turn(Say("found"))), create_look_tool()
    )
    script = Script(
        Turn(Call("task", {"description": "look", "subagent_type": "argocd"})),
        Turn(Say("Found {{tool:argocd}}.")),
    )
    async with supervisor(script, tools=[version.tool], agents=[argocd]) as client:
        stream = await client.ask("Look.")
        done = await run_command("caipe", "show", stream.task_id, "--url", client.url)
        unknown = await invoke_caipe("show", "nobody", "--url", client.url)
    assert done.code == 0, done.err
    assert "completed" in done.out
    assert "✓ argocd · " in done.out
    assert "  ✓ argocd · look · " in done.out
    assert argument in done.out
    assert "Found found." in done.out
    assert (unknown.code, "Traceback" in unknown.err) == (1, False)


def create_look_tool() -> BaseTool:
    @tool
    async def look(where: str) -> str:
        """Looks."""
        return f"nothing at {where}"

    return look


@pytest.mark.full
async def test_agents_and_doctor_say_what_there_is_and_what_is_missing() -> None:
    listed = await invoke_caipe("agents", env={"COLUMNS": "200"})
    assert listed.code == 0, listed.err
    assert "netutils" in listed.out
    assert "ARGOCD_TOKEN" in listed.out
    tried = await run_command("caipe", "agents", "test", "netutils")
    assert (tried.code, "check_port" in tried.out) == (0, True), tried.err
    nobody = await invoke_caipe("agents", "test", "nobody")
    assert (nobody.code, "netutils" in nobody.err) == (1, True)
    secret = secrets.token_hex(8)
    examined = await invoke_caipe(
        "doctor",
        env={"A2A_AUTH_SHARED_KEY": secret, "LLM_MODEL": "openai:gpt-5-mini", "ENABLE_RAG": "false"},
    )
    assert examined.code == 1
    assert "LLM_MODEL=openai:gpt-5-mini needs OPENAI_API_KEY, which is not set" in examined.out
    assert secret not in examined.out


async def test_without_a_server_a_question_is_answered_by_one_started_for_it() -> None:
    done = await run_command("caipe", "ask", "what does 10.0.0.0/22 contain?")
    assert done.code == 0, done.err
    assert "1,022" in done.out
    assert "Starting a server" in done.err
    assert done.err.count("No language model is set") == 1
    assert "✓ netutils · cidr_info cidr=10.0.0.0/22 · " in done.err


# --- people in the loop ---------------------------------------------------------------------------

FIELDS: list[dict[str, Any]] = [
    {
        "field_name": "name",
        "field_label": "Name",
        "pattern": "[a-z]+",
        "field_description": "As in the address.",
    },
    {"field_name": "size", "field_type": "select", "field_values": ["small", "Large"]},
    {"field_name": "topics", "field_type": "multiselect", "field_values": ["one", "two", "three"]},
    {"field_name": "private", "field_type": "boolean", "default_value": True},
    {"field_name": "stars", "field_type": "integer", "minimum": 0},
    {"field_name": "until", "field_type": "date", "required": False},
    {"field_name": "mail", "field_type": "email", "required": False},
    {"field_name": "about", "field_type": "textarea"},
]
PICK = Script(Turn(Call("pick")), Turn(Say("Got {{tool:pick}}")))
SEND = r"Send\? \[Y/n/edit\]"


async def fill_in(screen: PseudoTerminal, at: int, *filled: tuple[str, str]) -> int:
    """Types each value when its field is asked for."""
    for label, value in filled:
        at = await screen.wait_for_text(rf"\n{label}( \(y/n\))?( \[[^]]*\])?:", at)
        screen.type(f"{value}\r")
    return at


async def only_request(client: Client) -> dict[str, Any]:
    """The only request that is open."""
    (request,) = (await client.http.get(f"{client.url}v1/requests")).json()["requests"]
    return dict(request)


async def only_answer(client: Client, request_id: str) -> Any:
    return (await client.http.get(f"{client.url}v1/requests/{request_id}")).json()["answer"]


async def test_a_form_is_filled_in_field_by_field_and_checked_at_once() -> None:
    async with (
        supervisor(PICK, tools=[form_tool("pick", FIELDS)]) as client,
        start_in_terminal("caipe", "chat", "--url", client.url) as screen,
    ):
        await screen.wait_for_text("Ask in plain words")
        screen.type("Go.\r")
        at = await screen.wait_for_text("Supervisor asks: About pick")
        at = await screen.wait_for_text("As in the address.", at)
        at = await fill_in(screen, at, ("Name", "NO"))
        at = await screen.wait_for_text(r"Name must consist of lowercase letters\.", at)
        at = await fill_in(screen, at, ("Name", "cai"))
        at = await screen.wait_for_text(r"1\. small\s+2\. Large", at)
        at = await fill_in(
            screen, at, ("size", "2"), ("topics", "three, 1"), ("private", "n"), ("stars", "many")
        )
        at = await screen.wait_for_text(r"stars must be a whole number\.", at)
        at = await fill_in(screen, at, ("stars", "3"), ("until", ""), ("mail", "nobody"))
        at = await screen.wait_for_text(r"mail must be a mail address\.", at)
        at = await fill_in(screen, at, ("mail", ""), ("about", "first\x1b\rsecond"))
        at = await screen.wait_for_text(
            r"Name: cai\s+size: Large\s+topics: three, one\s+private: no\s+"
            r"stars: 3\s+until: -\s+mail: -\s+about: first",
            at,
        )
        request_id = (await only_request(client))["request_id"]
        at = await screen.wait_for_text(SEND, at)
        screen.type("edit\r")
        at = await fill_in(
            screen, at, ("Name", ""), ("size", "small"), *((field["field_name"], "") for field in FIELDS[2:])
        )
        at = await screen.wait_for_text(
            SEND, await screen.wait_for_text(r"size: small\s+topics: three, one", at)
        )
        screen.type("\r")
        at = await screen.wait_for_text(PROMPT, await screen.wait_for_text("Got ", at))
        screen.type(CTRL_D)
        assert await screen.wait_for_exit() == 0
        answer = await only_answer(client, request_id)
    assert answer == {
        "name": "cai",
        "size": "small",
        "topics": ["three", "one"],
        "private": False,
        "stars": 3,
        "about": "first\nsecond",
    }


async def test_a_form_that_was_left_comes_back_with_what_was_filled_in_or_is_declined() -> None:
    fields = [{"field_name": "name"}, {"field_name": "stars", "field_type": "integer"}]
    async with (
        supervisor(PICK, tools=[form_tool("pick", fields)]) as client,
        start_in_terminal("caipe", "chat", "--url", client.url) as screen,
    ):
        await screen.wait_for_text("Ask in plain words")
        screen.type("Go.\r")
        at = await fill_in(screen, await screen.wait_for_text("About pick"), ("name", "cai"))
        at = await screen.wait_for_text(r"\nstars:", at)
        screen.type(CTRL_C)
        at = await screen.wait_for_text(
            PROMPT, await screen.wait_for_text("Left open. Answer with /pending here", at)
        )
        request_id = (await only_request(client))["request_id"]
        screen.type("What else?\r")  # the reply says how to answer or drop it; the form is not asked again
        at = await screen.wait_for_text(PROMPT, await screen.wait_for_text("I still need your input", at))
        screen.type("/pending\r")
        at = await screen.wait_for_text(r"name \[cai\]:", await screen.wait_for_text("About pick", at))
        screen.type("/agents\r")  # a command, not a name
        at = await screen.wait_for_text(r"/agents works at the prompt of the chat\. Ctrl-C", at)
        at = await screen.wait_for_text(r"name \[cai\]:", at)
        screen.type("\r")
        at = await screen.wait_for_text(r"\nstars:", at)
        screen.type("/decline I have changed my mind\r")
        at = await screen.wait_for_text(PROMPT, await screen.wait_for_text("Got ", at))
        screen.type("/pending\r")
        await screen.wait_for_text(
            PROMPT, await screen.wait_for_text("There are no open requests in this conversation", at)
        )
        screen.type(CTRL_D)
        assert await screen.wait_for_exit() == 0
        assert await only_answer(client, request_id) == {
            "type": "reject",
            "message": "I have changed my mind",
        }


async def test_a_form_that_expired_is_asked_again_with_what_was_filled_in() -> None:
    late = form_tool("pick", [{"field_name": "name"}], expires_at="2020-01-01T00:00:00Z")
    async with (
        supervisor(PICK, tools=[late]) as client,
        start_in_terminal("caipe", "chat", "--url", client.url) as screen,
    ):
        await screen.wait_for_text("Ask in plain words")
        screen.type("Go.\r")
        at = await fill_in(screen, await screen.wait_for_text(r"About pick \(has expired\)"), ("name", "cai"))
        at = await screen.wait_for_text(SEND, at)
        screen.type("\r")
        at = await screen.wait_for_text(
            r"name \[cai\]:", await screen.wait_for_text("It had expired, so here it is again", at)
        )
        screen.type("\r")
        at = await screen.wait_for_text(SEND, at)
        screen.type("\r")
        await screen.wait_for_text(PROMPT, await screen.wait_for_text(r'Got \{"name": "cai"\}', at))
        screen.type(CTRL_D)
        assert await screen.wait_for_exit() == 0


async def test_approvals_are_asked_one_after_the_other() -> None:
    repos, names = Repos(), ["one", "two", "three", "four"]
    calls = [{"name": f"{name}\u202e", "private": False, "stars": 0} for name in names]
    async with (
        supervisor(DELEGATING, agents=[github(repos, *calls)]) as client,
        start_in_terminal("caipe", "chat", "--url", client.url) as screen,
    ):
        await screen.wait_for_text("Ask in plain words")
        screen.type("Go.\r")
        at = await screen.wait_for_text(
            r"4 requests are open:(\s+- Github wants to run create_repo[^\n]*){4}"
        )
        choices = r"approve \(y\), always \(a\), edit \(e\), reject \(n\), later \(l\)\s+Decision:"
        at = await screen.wait_for_text(choices, await screen.wait_for_text(r'"name": "one\\u202e"', at))
        screen.type("what is it for?\r")  # nothing is implied
        at = await screen.wait_for_text(r"Choose one of: approve \(y\)[^.]*\. [^.]*\.\s+Decision:", at)
        screen.type("y\r")
        at = await screen.wait_for_text(choices, await screen.wait_for_text(r'"name": "two\\u202e"', at))
        screen.type("reject the name is odd\r")
        at = await screen.wait_for_text(choices, await screen.wait_for_text(r'"name": "three\\u202e"', at))
        screen.type("l\r")
        at = await screen.wait_for_text(choices, await screen.wait_for_text(r'"name": "four\\u202e"', at))
        screen.type("e\r")
        at = await screen.wait_for_text(r"Arguments:", at)
        screen.type('\x15{"name": "other", "stars": "two"}\r')
        at = await screen.wait_for_text(SEND, await screen.wait_for_text(r'"name": "other"', at))
        screen.type("\r")
        at = await screen.wait_for_text(r"stars must be a whole number\.\s+approve \(y\)", at)
        screen.type("e\r")
        at = await screen.wait_for_text(r"Arguments:", at)
        screen.type('\x15{"name": "other", "stars": 2}\r')
        at = await screen.wait_for_text(SEND, await screen.wait_for_text(r'"name": "other"', at))
        screen.type("\r")
        at = await screen.wait_for_text(PROMPT, await screen.wait_for_text("Left open", at))
        open_request = await only_request(client)
        assert open_request["asked"]["arguments"]["name"] == "three\u202e"
        screen.type("/pending\r")
        at = await screen.wait_for_text(choices, at)
        screen.type("always\r")
        await screen.wait_for_text(PROMPT, await screen.wait_for_text("So: ", at))
        screen.type(CTRL_D)
        assert await screen.wait_for_exit() == 0
        allowed = (
            await client.http.get(f"{client.url}v1/conversations/{open_request['context_id']}/allowances")
        ).json()["allowances"]
    assert [allowance["tool"] for allowance in allowed] == ["github/create_repo"]
    assert sorted((allowance["name"], allowance["stars"]) for allowance in repos.made) == [
        ("one\u202e", 0),
        ("other", 2),
        ("three\u202e", 0),
    ]
    assert "\u202e" not in screen.raw


async def test_somebody_else_may_be_faster() -> None:
    repos = Repos()
    async with (
        supervisor(DELEGATING, agents=[github(repos, {"name": "cai"})]) as client,
        start_in_terminal("caipe", "chat", "--url", client.url) as screen,
    ):
        await screen.wait_for_text("Ask in plain words")
        screen.type("Go.\r")
        at = await screen.wait_for_text(r"later \(l\)\s+Decision:")
        request = await only_request(client)
        await client.call(
            "SendMessage", V10.message(V10.data({"resume": {request["request_id"]: {"type": "approve"}}}))
        )
        screen.type("n\r")
        at = await screen.wait_for_text(r"Reason \[none\]:", at)
        screen.type("\r")
        await screen.wait_for_text(PROMPT, await screen.wait_for_text("was already answered by", at))
        screen.type(CTRL_D)
        assert await screen.wait_for_exit() == 0
    assert len(repos.made) == 1
    assert "Left open" not in screen.text


async def test_without_a_terminal_what_is_asked_is_printed_and_the_next_line_is_sent() -> None:
    async with supervisor(PICK, tools=[form_tool("pick", [{"field_name": "name"}])]) as client:
        done = await run_command("caipe", "chat", "--url", client.url, stdin="Go.\n/pending\ncai and more\n")
    assert done.code == 0, done.err
    assert done.out.count("caipe answer ") == 2
    assert done.out.count("✓ pick") == 1, "what happened before the answer is not told again"
    assert 'Got {"name": "cai and more"}' in done.out


async def test_an_approval_hides_nothing_and_what_is_approved_is_what_was_seen() -> None:
    hidden = {"name": "ok\u202e\u200b\u2800", "private": False}
    repos = Repos()
    evil = github(repos, hidden)
    async with (
        supervisor(DELEGATING, agents=[evil]) as client,
        start_in_terminal("caipe", "chat", "--url", client.url) as screen,
    ):
        await screen.wait_for_text("Ask in plain words")
        screen.type("Go.\r")
        at = await screen.wait_for_text(r'"name": "ok\\u202e\\u200b\\u2800"')
        at = await screen.wait_for_text(r"approve \(y\)", at)
        assert repos.made == []
        screen.type("y\r")
        await screen.wait_for_text(PROMPT, await screen.wait_for_text("is there", at))
        screen.type(CTRL_D)
        assert await screen.wait_for_exit() == 0
    assert [made["name"] for made in repos.made] == [hidden["name"]]
    assert not set("\u2800\u200b") & set(screen.raw.partition("approve (y)")[0])


async def test_a_form_names_what_cannot_be_seen_in_its_texts_and_choices() -> None:
    evil = "\x1b[2Jpay\u202e\u200bment\u00a0x"
    fields = [
        {"field_name": "kind", "field_label": evil, "field_type": "select", "field_values": [evil, "b"]},
    ]
    script = Script(Turn(Call("ask", {})), Turn(Say("Done.")))
    async with (
        supervisor(script, tools=[form_tool("ask", fields, description=evil)]) as client,
        start_in_terminal("caipe", "chat", "--url", client.url) as screen,
    ):
        await screen.wait_for_text("Ask in plain words")
        screen.type("Go.\r")
        shown = r"⟨U\+001B⟩\[2Jpay⟨U\+202E⟩⟨U\+200B⟩ment⟨U\+00A0⟩x"
        at = await screen.wait_for_text(rf"1\. {shown}")
        await screen.wait_for_text(rf"{shown}:", at)
        screen.type(CTRL_C)
        await screen.wait_for_text(PROMPT, await screen.wait_for_text("Left open"))
        screen.type(CTRL_D)
        assert await screen.wait_for_exit() == 0
    assert "\x1b[2Jpay" not in screen.raw
    assert "\u202e" not in screen.raw
