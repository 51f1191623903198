"""Requests on the command line: `pending`, `approve`, `reject`, `answer`, `allowances`, `ask --answer`."""

import asyncio
import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from langchain_core.tools import StructuredTool
from langgraph.types import interrupt

from ai_platform_engineering.a2a.client import A2AClient, ClientConversation
from ai_platform_engineering.a2a.rest_client import rest_api_for_client
from ai_platform_engineering.core.events import EVENT_ADAPTER
from tests.runtime.server.test_a2a_input_required import SCRIPT
from tests.runtime.server.test_a2a_input_required import form_tool as ask_form_tool
from tests.support.asking_agent import (
    DELEGATING,
    Repos,
    ask_until_paused,
    form_tool,
    github,
    request_ids,
    send_answers,
)
from tests.support.echo_supervisor import FORM
from tests.support.fakes.model import ScriptedChatModel
from tests.support.fakes.script import Call, Say, Script, Turn
from tests.support.harness import Client, agent, supervisor
from tests.support.processes import CommandResult, invoke_caipe, run_command

OK, FAILED, USAGE, UNREACHABLE, INPUT_REQUIRED = 0, 1, 2, 3, 4
CAI = {"name": "cai", "private": True, "stars": 1}


async def caipe(client: Client, *arguments: str) -> CommandResult:
    return await invoke_caipe(*arguments, env={"CAIPE_URL": client.url})


async def status(client: Client, request_id: str) -> str:
    return str((await client.http.get(f"{client.url}v1/requests/{request_id}")).json()["status"])


# --- what is open ---------------------------------------------------------------------------------


async def test_nothing_pending_is_said_and_is_no_error() -> None:
    async with supervisor(SCRIPT, tools=[ask_form_tool()]) as client:
        assert await caipe(client, "pending") == CommandResult(OK, "", "There are no open requests.\n")
        assert (await caipe(client, "pending", "--json")).out == "[]\n"
    unreachable = await invoke_caipe("pending", "--url", "http://127.0.0.1:1/")
    assert (unreachable.code, unreachable.out) == (UNREACHABLE, "")


async def test_pending_shows_what_is_asked_and_the_commands_that_answer_it() -> None:
    repos = Repos()
    async with supervisor(DELEGATING, agents=[github(repos, CAI)], tools=[ask_form_tool()]) as client:
        stream = await ask_until_paused(client)
        (request_id,) = request_ids(stream)
        listed = await caipe(client, "pending")
        (entry,) = json.loads((await caipe(client, "pending", "--json")).out)
    heading, *lines = listed.out.splitlines()
    assert heading in (
        f"Github wants to run create_repo (expires in {span})" for span in ("23 h 59 min", "1 d 0 h")
    )
    assert lines == [
        *[f"  {line}" for line in json.dumps(CAI, indent=2).splitlines()],
        "  Its agent's definition requires approval for it.",
        f"  caipe approve {request_id}",
        f"  caipe approve {request_id} --always   (for this conversation, with any arguments)",
        f"  caipe approve {request_id} --set name=…",
        f'  caipe reject {request_id} --reason "…"',
        f"  (task {stream.task_id}, context {stream.context_id})",
        "",
    ]
    assert (listed.code, entry["request_id"], entry["asked"]["arguments"]) == (OK, request_id, CAI)


async def test_a_question_that_ends_in_a_form_shows_it_and_how_to_answer() -> None:
    async with supervisor(SCRIPT, tools=[ask_form_tool()]) as client:
        done = await run_command("caipe", "ask", "Create a repo.", env={"CAIPE_URL": client.url})
        (entry,) = json.loads((await caipe(client, "pending", "--json")).out)
        listed = await caipe(client, "pending")
    assert (done.code, done.out) == (INPUT_REQUIRED, "")
    for text in (done.err, listed.out):
        assert "  - stars: a whole number, at least 0, optional\n" in text
        assert f"  caipe answer {entry['request_id']} repo=… [stars=…]\n" in text
        assert f"  caipe reject {entry['request_id']} " in text


async def test_changed_arguments_that_do_not_fit_are_named_and_the_call_still_waits() -> None:
    repos = Repos()
    async with supervisor(DELEGATING, agents=[github(repos, CAI)]) as client:
        [request_id] = request_ids(await ask_until_paused(client))
        wrong = await caipe(client, "approve", request_id, "--set", "stars=many", "--set", "private=7")
        still = await status(client, request_id)
        right = await caipe(client, "approve", request_id, "--set", "stars=7")
    assert (wrong.code, wrong.out, still) == (INPUT_REQUIRED, "", "pending")
    assert "private must be true or false. stars must be a whole number." in wrong.err
    assert right.code == OK
    assert repos.made == [{**CAI, "stars": 7}]


async def test_a_question_without_a_title_keeps_its_mark() -> None:
    tool = form_tool("region", [{"field_name": "region"}], title="", response="Which region?")
    async with supervisor(Script(Turn(Call("region"))), tools=[tool]) as client:
        await ask_until_paused(client)
        listed = await caipe(client, "pending")
    assert "Supervisor asks: Which region? (expires in " in listed.out


async def test_nothing_of_a_request_can_control_the_terminal_and_no_argument_hides() -> None:
    evil, repos = "\x1b[2J\u202eevil\x9b", Repos()
    hidden = {"name": "ok\u202e\u200b\x7f\U000e0041", "private": False}
    fields = [
        {
            "field_name": f"a{evil}",
            "field_label": f"{evil}\nlabel",
            "field_description": evil,
            "default_value": evil,
            "placeholder": evil,
        }
    ]
    async with supervisor(DELEGATING, agents=[github(repos, hidden)]) as client:
        done, listed = await caipe(client, "ask", "Go."), await caipe(client, "pending")
        for text in (done.err, listed.out):
            assert '"name": "ok\\u202e\\u200b\\u007f\\udb40\\udc41"' in text
    script = Script(Turn(Call("repo")), Turn(Say("Done.")))
    async with supervisor(script, tools=[form_tool("repo", fields, description=evil)]) as client:
        form, forms = await caipe(client, "ask", "Go."), await caipe(client, "pending")
    for text in (done.err, listed.out, form.err, forms.out):
        assert [character for character in text if not character.isprintable() and character != "\n"] == []
        assert "evil" in text or "ok" in text


# --- answers --------------------------------------------------------------------------------------


async def test_an_answer_to_a_form_is_followed_to_the_end_and_counts_once() -> None:
    async with supervisor(SCRIPT, tools=[ask_form_tool()]) as client:
        (request_id,) = request_ids(await ask_until_paused(client))
        done = await run_command(
            "caipe", "answer", request_id[:6], "repo=cai", "stars=3", env={"CAIPE_URL": client.url}
        )
        again = await caipe(client, "answer", request_id, "repo=other")
    assert (done.code, done.out) == (OK, "Made cai.\n")
    assert "One moment." not in done.err, "what happened before is not told again"
    assert "✓ ask_form" in done.err
    assert (again.code, again.out) == (FAILED, "")
    assert "was already answered by" in again.err


async def test_wrong_values_leave_the_form_open_with_a_sentence_for_each() -> None:
    async with supervisor(SCRIPT, tools=[ask_form_tool()]) as client:
        (request_id,) = request_ids(await ask_until_paused(client))
        wrong = await caipe(client, "answer", request_id, "repo=NO", "stars=many", "more=1")
        assert (wrong.code, wrong.out) == (INPUT_REQUIRED, "")
        for sentence in (
            "Repository must consist of lowercase letters, digits and hyphens.",
            "stars must be a whole number.",
            "There is no field more;",
        ):
            assert sentence in wrong.err
        assert f"caipe answer {request_id} " in wrong.err
        assert (await caipe(client, "answer", request_id, "repo=cai")).out == "Made cai.\n"


async def test_a_repeated_name_is_a_list() -> None:
    fields = [{"field_name": "topics", "field_type": "multiselect", "field_values": ["a", "b,c", "d"]}]
    script = Script(Turn(Call("pick")), Turn(Say("{{tool:pick}}")))
    async with supervisor(script, tools=[form_tool("pick", fields)]) as client:
        (request_id,) = request_ids(await ask_until_paused(client))
        done = await caipe(client, "answer", request_id, "topics=b,c", "topics=a")
    assert json.loads(done.out) == {"topics": ["b,c", "a"]}


async def test_a_form_can_be_declined_with_a_reason() -> None:
    script = Script(Turn(Call("pick")), Turn(Say("{{tool:pick}}")))
    async with supervisor(script, tools=[form_tool("pick", [{"field_name": "name"}])]) as client:
        (request_id,) = request_ids(await ask_until_paused(client))
        done = await caipe(client, "reject", request_id, "--reason", "Not today.")
    result = json.loads(done.out)
    assert (done.code, result["type"], result["message"]) == (OK, "reject", "Not today.")


@pytest.mark.parametrize(
    ("arguments", "tool_arguments"),
    [
        (["approve"], CAI),
        (
            ["approve", "--set", "name=1.10", "--set", "private=false", "--set", "stars=7"],
            {"name": "1.10", "private": False, "stars": 7},
        ),
        (["approve", "--set", 'name="a \\"b\\""'], {**CAI, "name": 'a "b"'}),
        (["approve", "--set", "name=a=b"], {**CAI, "name": "a=b"}),
    ],
    ids=["as it is", "changed", "a text as JSON", "a text with ="],
)
async def test_an_approval_runs_the_call_as_it_was_shown_or_changed(
    arguments: list[str], tool_arguments: dict[str, Any]
) -> None:
    repos = Repos()
    async with supervisor(DELEGATING, agents=[github(repos, CAI)]) as client:
        (request_id,) = request_ids(await ask_until_paused(client))
        done = await caipe(client, arguments[0], request_id, *arguments[1:])
        later = await caipe(client, "reject", request_id)
    assert (done.code, repos.made) == (OK, [tool_arguments])
    assert f"{tool_arguments['name']} is there." in done.out
    assert (later.code, "was already answered" in later.err) == (FAILED, True)


async def test_a_rejection_and_its_reason_reach_the_model() -> None:
    repos = Repos()
    async with supervisor(DELEGATING, agents=[github(repos, CAI)]) as client:
        (request_id,) = request_ids(await ask_until_paused(client))
        done = await caipe(client, "reject", request_id, "--reason", "The name is taken")
    assert (done.code, repos.made) == (OK, [])
    assert "rejected this call of create_repo: The name is taken." in done.out


async def test_always_is_visible_and_can_be_taken_back() -> None:
    repos = Repos()
    async with supervisor(DELEGATING, agents=[github(repos, CAI)]) as client:
        stream = await ask_until_paused(client, contextId="talk")
        assert (await caipe(client, "allowances", "talk")).out == ""
        assert (
            await caipe(client, "approve", request_ids(stream)[0], "--always")
        ).out == "So: cai is there.\n"
        assert (await caipe(client, "ask", "--context", "talk", "Again.")).code == OK
        listed = await caipe(client, "allowances", "talk")
        assert listed.out.startswith("github/create_repo runs without asking in talk")
        assert "  caipe allowances talk --remove github/create_repo\n" in listed.out

        removed = await caipe(client, "allowances", "talk", "--remove", "github/create_repo")
        assert (removed.code, removed.err) == (OK, "github/create_repo asks for approval again.\n")
        assert (await caipe(client, "allowances", "talk", "--remove", "github/create_repo")).code == FAILED
        assert (await caipe(client, "ask", "--context", "talk", "Again.")).code == INPUT_REQUIRED
        assert (await caipe(client, "allowances", "nowhere")).err == "There is no conversation nowhere.\n"
    assert repos.made == [CAI, CAI]


async def test_pending_tells_of_the_allowances_of_its_conversations() -> None:
    repos, script = Repos(), Script(Turn(Call("create_repo", CAI)), Turn(Call("repo")), Turn(Say("Done.")))
    tools = [repos.tool, form_tool("repo", [{"field_name": "name"}])]
    async with supervisor(script, tools=tools) as client:
        stream = await ask_until_paused(client, contextId="talk")
        done = await caipe(client, "approve", request_ids(stream)[0], "--always")
        assert done.code == INPUT_REQUIRED, "the next request of the same run"
        assert "caipe answer" in done.err
        assert "supervisor/create_repo runs without asking in talk" in (await caipe(client, "pending")).out


async def test_what_is_no_answer_to_the_request_is_not_sent() -> None:
    repos = Repos()
    async with supervisor(DELEGATING, agents=[github(repos, CAI)]) as client:
        (request_id,) = request_ids(await ask_until_paused(client))
        for arguments, message in (
            (("answer", request_id, "name=x"), f"caipe approve {request_id}"),
            (
                ("approve", request_id, "--set", "nmae=x"),
                "create_repo is not called with nmae; its arguments are name, private, stars.",
            ),
            (("approve", "nothing"), "There is no request nothing."),
            (("approve", ""), "No id."),
        ):
            done = await caipe(client, *arguments)
            assert (done.code, done.out, message in done.err) == (FAILED, "", True), done.err
        for wrong in (("answer", request_id), ("answer", request_id, "name"), ("answer", request_id, "=x")):
            assert (await caipe(client, *wrong)).code == USAGE
        assert (await caipe(client, "approve", request_id, "--always", "--set", "name=x")).code == USAGE
        assert await status(client, request_id) == "pending"
    async with supervisor(SCRIPT, tools=[ask_form_tool()]) as client:
        (request_id,) = request_ids(await ask_until_paused(client))
        done = await caipe(client, "approve", request_id)
        assert (done.code, f"caipe answer {request_id} " in done.err) == (FAILED, True)
        assert await status(client, request_id) == "pending"
    assert repos.made == []


async def test_a_beginning_that_two_requests_share_answers_neither() -> None:
    repos, calls = (
        Repos(),
        [{**CAI, "name": f"r{number}"} for number in range(17)],
    )  # more than there are hexadecimal digits
    async with supervisor(DELEGATING, agents=[github(repos, *calls)]) as client:
        ids = sorted(request_ids(await ask_until_paused(client)))
        first, second = next(pair for pair in itertools.pairwise(ids) if pair[0][0] == pair[1][0])
        done = await caipe(client, "approve", first[0])
        assert (done.code, first in done.err, second in done.err) == (FAILED, True, True)
        assert {await status(client, result) for result in ids} == {"pending"}
        result = await caipe(client, "approve", first)
        assert result.code == INPUT_REQUIRED
        assert (f"caipe approve {first}\n" in result.err, f"caipe approve {second}\n" in result.err) == (
            False,
            True,
        )
        assert await status(client, first) == "answered"
    assert len(repos.made) == 1


async def test_an_answer_to_a_run_that_works_is_followed_until_it_was_taken_in() -> None:
    begun, released, created = asyncio.Event(), asyncio.Event(), list[str]()

    async def create_repo(name: str) -> str:
        """Creates."""
        created.append(name)
        if name == "slow":
            begun.set()
            await released.wait()
        return f"{name} is there."

    tool = StructuredTool.from_function(coroutine=create_repo, name="create_repo", metadata={"listed": "ask"})
    calls = [Call("create_repo", {"name": name}, id=name) for name in ("slow", "fast")]
    script = Script(Turn(*calls), Turn(Say("All is there.")))
    async with supervisor(DELEGATING, agents=[agent("github", script, tool)]) as client:
        stream = await ask_until_paused(client)
        data = [frame.artifact["parts"][0]["data"] for frame in stream.named("UserInputMetaData")]
        ids = {approval["arguments"]["name"]: approval["request_id"] for approval in data}
        slow = asyncio.create_task(send_answers(client, stream, {ids["slow"]: {"type": "approve"}}))
        await begun.wait()
        fast = asyncio.create_task(caipe(client, "approve", ids["fast"]))
        while await status(client, ids["fast"]) != "answered":
            pass
        released.set()
        done = await fast
        await slow
    assert (done.code, done.out) == (OK, "So: All is there.\n")
    assert sorted(created) == ["fast", "slow"]


async def test_an_answer_can_be_followed_as_events() -> None:
    async with supervisor(SCRIPT, tools=[ask_form_tool()]) as client:
        (request_id,) = request_ids(await ask_until_paused(client))
        done = await caipe(client, "answer", request_id, "repo=cai", "--json")
    kinds = [EVENT_ADAPTER.validate_json(line).kind for line in done.out.splitlines()]
    assert (kinds[0], kinds[-1], done.code) == ("input_resolved", "answered", OK)


async def test_a_text_to_the_conversation_is_an_answer_by_the_servers_rules() -> None:
    async with supervisor(SCRIPT, tools=[ask_form_tool()]) as client:
        await ask_until_paused(client, contextId="talk")
        unclear = await caipe(client, "ask", "--context", "talk", "Which one?")
        done = await caipe(client, "ask", "--context", "talk", "repo: cai")
    assert (unclear.code, unclear.out) == (INPUT_REQUIRED, "")
    assert "I still need your input" in unclear.err
    assert (done.code, done.out) == (OK, "Made cai.\n")


# --- ask --answer ---------------------------------------------------------------------------------


async def test_forms_are_answered_with_the_values_that_were_given() -> None:
    tools = [
        form_tool("first", [{"field_name": "name"}, {"field_name": "stars", "field_type": "integer"}]),
        form_tool(
            "second",
            [{"field_name": "name"}, {"field_name": "private", "field_type": "boolean", "required": False}],
        ),
    ]
    script = Script(Turn(Call("first")), Turn(Call("second")), Turn(Say("{{tool:first}} {{tool:second}}")))
    async with supervisor(script, tools=tools) as client:
        options = ("--answer", "name=cai", "--answer", "stars=3", "--answer", "private=yes")
        done = await run_command("caipe", "ask", *options, "Go.", env={"CAIPE_URL": client.url})
    assert (done.code, done.out) == (OK, '{"name": "cai", "stars": 3} {"name": "cai", "private": true}\n')


async def test_values_may_come_from_a_file_and_the_command_line_wins(tmp_path: Path) -> None:
    file, broken = tmp_path / "values.json", tmp_path / "broken.json"
    file.write_text(json.dumps({"repo": "from-file", "stars": 4}))
    broken.write_text("[1]")
    async with supervisor(ScriptedChatModel(script=SCRIPT), tools=[ask_form_tool()]) as client:
        assert (await caipe(client, "ask", "--answers", str(file), "Go.")).out == "Made from-file.\n"
        assert (
            await caipe(client, "ask", "--answers", str(file), "--answer", "repo=mine", "Go.")
        ).out == "Made mine.\n"
        assert (await caipe(client, "ask", "--answers", str(broken), "Go.")).code == USAGE
        assert (await caipe(client, "ask", "--answers", str(tmp_path / "none.json"), "Go.")).code == USAGE
        assert (await caipe(client, "ask", "--answer", "repo", "Go.")).code == USAGE


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--answer", "repo=NO"], "repo: Repository must consist of lowercase letters, digits and hyphens."),
        (["--answer", "stars=3"], "repo: Repository is required."),
        (["--answer", "repo=cai", "--answer", "stars=-1"], "stars: stars must be at least 0."),
        (["--answer", "name=cai"], "No form asked for: name."),
    ],
)
async def test_a_missing_or_wrong_value_is_code_four_and_nothing_is_sent(
    options: list[str], sentence: str
) -> None:
    async with supervisor(SCRIPT, tools=[ask_form_tool()]) as client:
        done = await caipe(client, "ask", *options, "Go.")
        (entry,) = json.loads((await caipe(client, "pending", "--json")).out)
        task = (await client.call("GetTask", {"id": entry["task_id"]}))["result"]
    assert (done.code, done.out) == (INPUT_REQUIRED, "")
    assert sentence in done.err.splitlines()
    assert f"caipe answer {entry['request_id']} " in done.err
    assert "I still need" not in str(task["status"]), "nothing was sent"


async def test_a_form_for_which_nothing_was_given_is_not_answered() -> None:
    script = Script(Turn(Call("pick")), Turn(Say("Done.")))
    fields: list[dict[str, Any]] = [
        {"field_name": "name", "required": False},
        {"field_name": "size", "default_value": "small"},
    ]
    async with supervisor(script, tools=[form_tool("pick", fields)]) as client:
        assert (await caipe(client, "ask", "--answer", "other=1", "Go.")).code == INPUT_REQUIRED
        assert (await caipe(client, "ask", "--answer", "size=big", "Go.")).code == OK


async def test_a_form_that_comes_again_is_not_answered_with_the_same_values() -> None:
    async def pick() -> str:
        """Asks until the name is free."""
        while (name := interrupt(FORM)["repo"]) == "taken":
            pass
        return str(name)

    tool = StructuredTool.from_function(coroutine=pick, name="pick")
    async with supervisor(
        Script(Turn(Call("pick")), Turn(Say("Made {{tool:pick}}."))), tools=[tool]
    ) as client:
        done = await caipe(client, "ask", "--answer", "repo=taken", "Go.")
        (entry,) = json.loads((await caipe(client, "pending", "--json")).out)
        assert (done.code, "Create GitHub Repo is asked again" in done.err) == (INPUT_REQUIRED, True)
        assert (await caipe(client, "answer", entry["request_id"], "repo=free")).out == "Made free.\n"


async def test_approvals_are_never_implied() -> None:
    repos = Repos()
    async with supervisor(DELEGATING, agents=[github(repos, CAI)]) as client:
        done = await caipe(client, "ask", "--answer", "type=approve", "--answer", "name=x", "Go.")
        (entry,) = json.loads((await caipe(client, "pending", "--json")).out)
    assert (done.code, done.out, repos.made) == (INPUT_REQUIRED, "", [])
    assert f"  caipe approve {entry['request_id']}\n" in done.err
    assert f"  caipe reject {entry['request_id']} " in done.err


# --- people decide on what they see ---------------------------------------------------------------


async def test_a_call_is_approved_by_enough_of_its_id_that_no_other_can_be_meant() -> None:
    repos = Repos()
    async with supervisor(DELEGATING, agents=[github(repos, CAI)]) as client:
        (request_id,) = request_ids(await ask_until_paused(client))
        few = await caipe(client, "approve", request_id[:7])
        assert (few.code, repos.made) == (FAILED, [])
        assert "Type at least 8 characters of the id" in few.err
        assert (await caipe(client, "approve", request_id[:8])).code == OK
    assert repos.made == [CAI]


async def test_a_long_call_and_a_long_default_are_shown_to_their_ends() -> None:
    repos = Repos()
    call = {"name": "\n".join(f"label-{number}" for number in range(1_500)) + "\nprivileged", "private": True}
    fields = [{"field_name": "repo", "default_value": "x" * 200 + " rm -rf /"}]
    async with supervisor(DELEGATING, agents=[github(repos, call)]) as client:
        await ask_until_paused(client)
        listed = await caipe(client, "pending")
    assert '\\nprivileged",\n' in listed.out
    script = Script(Turn(Call("repo")), Turn(Say("Done.")))
    async with supervisor(script, tools=[form_tool("repo", fields)]) as client:
        await caipe(client, "ask", "Go.")
        forms = await caipe(client, "pending")
    assert "rm -rf /" in forms.out


async def test_requests_of_an_owner_are_decided_by_who_may_speak_for_others() -> None:
    repos, owner = Repos(), "slack:T1:C1:1.000001"
    keys = {"A2A_AUTH_SHARED_KEY": "s" * 40, "A2A_AUTH_DELEGATE_KEY": "d" * 40}
    speaking = ("--owner", owner, "--token", keys["A2A_AUTH_DELEGATE_KEY"])
    async with supervisor(DELEGATING, agents=[github(repos, CAI)], env=keys) as client:
        thread = A2AClient(client.url, client.http, token=keys["A2A_AUTH_DELEGATE_KEY"]).on_behalf_of(
            "bot", owner
        )
        async for _ in thread.ask("Go.", ClientConversation(owner)):
            pass
        nothing = await caipe(client, "pending", "--token", keys["A2A_AUTH_SHARED_KEY"])
        refused = await caipe(client, "pending", "--owner", owner, "--token", keys["A2A_AUTH_SHARED_KEY"])
        (entry,) = json.loads((await caipe(client, "pending", "--json", *speaking)).out)
        done = await caipe(client, "approve", entry["request_id"], "--user", "ops@example.com", *speaking)
        row = await rest_api_for_client(thread)("GET", f"/v1/requests/{entry['request_id']}")
    assert (nothing.out, refused.code) == ("", FAILED)
    assert "may not speak for others" in refused.err
    assert (done.code, row["by"], repos.made) == (OK, "ops@example.com", [CAI])
