"""Skills in use: what the model is told and when, how people call one by name, and which version a run
works with.
"""

import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
from langchain_core.language_models import BaseChatModel
from langchain_core.tools import BaseTool

from ai_platform_engineering.core.events import Notice, ToolFinished, ToolStarted
from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.models.offline_model import OfflineModel
from ai_platform_engineering.multi_agents.platform_engineer.placement import PlacedAgent
from ai_platform_engineering.multi_agents.platform_engineer.protocol_bindings.a2a.main import create_app
from ai_platform_engineering.net.connections import UrlChecker
from ai_platform_engineering.runtime.storage import Storage
from ai_platform_engineering.skills_middleware.skill_catalog import SkillCatalog
from ai_platform_engineering.skills_middleware.skill_database import SqliteSkillDatabase
from ai_platform_engineering.skills_middleware.skill_store import SkillStore
from ai_platform_engineering.skills_middleware.sources.folder_source import SkillFolder
from ai_platform_engineering.skills_middleware.sources.hub_reader import HubReader
from ai_platform_engineering.skills_middleware.sources.skill_source import SkillSource
from tests.support.asking_agent import ask_until_paused, form_tool, request_ids, send_answers
from tests.support.dialects import Dialect, both_versions
from tests.support.echo_supervisor import VersionScenario
from tests.support.fakes.clock import ScaledClock
from tests.support.fakes.model import ScriptedChatModel
from tests.support.fakes.request import Request
from tests.support.fakes.script import Book, Call, Say, Script, Turn
from tests.support.fakes.slack import FakeSlack
from tests.support.harness import FAST, PLAIN, Client, ReceivedStream, agent, serve_app, supervisor
from tests.support.processes import invoke_caipe
from tests.support.scenarios import delegate, token, tool
from tests.support.skill_files import BLOCKED, skill_files, write_skill
from tests.support.slack_workspace import LIMITS, BotHarness, join_texts
from tests.support.storages import in_folder
from tests.support.terminals import start_in_terminal

GUIDE = "references/guide.md"
TRIAGE = "incident-triage"


def catalogue(home: Path, *sources: SkillSource) -> SkillCatalog:
    """What is stored in a folder, opened anew."""
    reader = HubReader(
        home / "hubs", {"PATH": os.environ["PATH"], "HOME": str(home)}, UrlChecker(allow_private=True)
    )
    return SkillCatalog(SkillStore(SqliteSkillDatabase(home / "skills.db")), reader, sources)


async def stocked(home: Path, *skills: Mapping[str, bytes]) -> SkillCatalog:
    catalog = catalogue(home)
    for files in skills:
        await catalog.create(files)
    return catalog


@contextlib.asynccontextmanager
async def skilled(
    catalog: SkillCatalog,
    model: BaseChatModel | None,
    *,
    storage: Storage | None = None,
    agents: Sequence[PlacedAgent] = (),
    tools: Sequence[BaseTool] = (),
) -> AsyncIterator[Client]:
    """The supervisor with skills, on a storage that may outlive it; without a model the embedded router
    answers.
    """
    options: dict[str, Any] = {
        "agents": agents,
        "tools": tools,
        "model": model,
        "router": OfflineModel(),
        "storage": storage,
    }
    async with (
        serve_app(create_app(Settings.from_variables(FAST), skills=catalog, **options)) as url,
        httpx.AsyncClient(timeout=120, verify=PLAIN) as http,
    ):
        yield Client(url, http)


def load(name: str = TRIAGE) -> Call:
    return Call("load_skill", {"name": name}, id=f"load-{name}")


def read(path: str = GUIDE, name: str = TRIAGE, offset: int | None = None) -> Call:
    return Call(
        "read_skill_file", {"name": name, "path": path, **({} if offset is None else {"offset": offset})}
    )


def scripted(*turns: Any) -> ScriptedChatModel:
    return ScriptedChatModel(script=Script(*turns, exhausted="error"))


def results(request: Request, name: str) -> list[str]:
    """What the model was shown of a tool's results, since the question."""
    return request.tool_results.get(name, [])


def notices(stream: ReceivedStream) -> list[str]:
    return [event.text for event in stream.events if isinstance(event, Notice) and event.code == "skill"]


def outcomes(stream: ReceivedStream) -> list[tuple[str, str]]:
    return [(event.tool, event.outcome) for event in stream.events if isinstance(event, ToolFinished)]


async def version_of(catalog: SkillCatalog, name: str = TRIAGE) -> str:
    skill = await catalog.get(name)
    assert skill is not None
    return skill.version


# --- what the model is told -----------------------------------------------------------------------


async def test_the_model_sees_names_loads_a_skill_reads_its_file_and_follows_it(tmp_path: Path) -> None:
    body = token()
    detail = token()
    other = token()
    version = VersionScenario()
    catalog = await stocked(
        tmp_path,
        skill_files(
            TRIAGE,
            f"Read the guide. {body}",
            description="What to do first.",
            references__guide=f"severity={detail} is worst.",
        ),
        skill_files("cost-check", f"Count. {other}", description="Where\n  money goes."),
    )
    now = await version_of(catalog)
    model = scripted(
        Turn(Say("Let me see."), load()),
        Turn(read()),
        Turn(Call("version")),
        Turn(Say("Severity {{tool:read_skill_file.severity}} of {{tool:version.version}}.")),
    )
    async with supervisor(model, tools=[version.tool], skills=catalog) as client:
        stream = await client.ask("Payments are slow.")
    first, second, third, fourth = model.requests
    assert first.system.endswith("- cost-check: Where money goes.\n- incident-triage: What to do first.")
    assert {"load_skill", "read_skill_file", "find_skills"} < set(first.tools)
    assert [body in request.system for request in model.requests] == [False, True, True, True]
    assert f"{TRIAGE} (version {now}) is in use" in second.system
    assert GUIDE in second.system
    assert not any(detail in str(request) for request in (first, second))
    assert (
        results(third, "read_skill_file")
        == results(fourth, "read_skill_file")
        == [f"severity={detail} is worst."]
    )
    assert not any(detail in request.system or other in str(request) for request in model.requests)
    assert stream.answer == f"Severity {detail} of {version.value}."
    assert [event.tool for event in stream.events if isinstance(event, ToolStarted)] == [
        "load_skill",
        "read_skill_file",
        "version",
    ]
    assert outcomes(stream) == [("load_skill", "ok"), ("read_skill_file", "ok"), ("version", "ok")]
    assert stream.notifications[:2] == [
        "🔧 Supervisor: Calling tool: Load_Skill\n",
        "✅ Supervisor: Tool Load_Skill completed\n",
    ]
    assert notices(stream) == [f"Skill {TRIAGE} (version {now}) is in use."]
    skill_results = [
        event.result
        for event in stream.events
        if isinstance(event, ToolFinished) and event.tool == "read_skill_file"
    ]
    assert skill_results == [
        f"{GUIDE} of the skill {TRIAGE} (version {now}), {len(f'severity={detail} is worst.')} characters."
    ]


async def test_a_long_file_is_read_in_pieces(tmp_path: Path) -> None:
    text = "".join(f"{number:07} " for number in range(6_000))
    catalog = await stocked(tmp_path, skill_files(TRIAGE, references__guide=text))
    model = scripted(
        Turn(load()),
        Turn(read(), read(offset=20_000), read(offset=40_000), read(offset=90_000), read(offset=-5)),
        Turn(Say("So.")),
    )
    async with supervisor(model, skills=catalog) as client:
        await client.ask("Go.")
    first, second, third, beyond, negative = results(model.requests[-1], "read_skill_file")
    assert first == negative == f"{text[:20_000]}\n[28000 more characters: read it with offset 20000]"
    assert second == f"{text[20_000:40_000]}\n[8000 more characters: read it with offset 40000]"
    assert (third, beyond) == (text[40_000:], "")


async def test_what_cannot_be_read_or_loaded_is_said(tmp_path: Path) -> None:
    catalog = await stocked(tmp_path, skill_files(TRIAGE, references__guide="x"), skill_files("cost-check"))
    model = scripted(
        Turn(load("nothing"), read()),
        Turn(load(f"/{TRIAGE}")),
        Turn(read("references/none.md"), read("../x"), read(name="cost-check")),
        Turn(Say("So.")),
    )
    async with supervisor(model, skills=catalog) as client:
        stream = await client.ask("Go.")
    assert results(model.requests[1], "load_skill") == [
        f"There is no skill nothing. The skills are: cost-check, {TRIAGE}."
    ]
    assert results(model.requests[1], "read_skill_file") == [
        f"The skill {TRIAGE} is not in use: load it first."
    ]
    *missing, unused = results(model.requests[-1], "read_skill_file")[1:]
    assert [f"It has: {GUIDE}." in text for text in missing] == [True, True]
    assert unused == "The skill cost-check is not in use: load it first."
    assert [outcome for _, outcome in outcomes(stream)].count("error") == 5


async def test_the_next_question_starts_without_the_skill(tmp_path: Path) -> None:
    body = token()
    detail = token()
    version = VersionScenario()
    files = skill_files(TRIAGE, body, top="allowed-tools: nothing\n", references__guide=detail)
    catalog = await stocked(tmp_path, files)
    again = Script(Turn(Call("version")), Turn(Say("It is {{tool:version.version}}.")))
    model = ScriptedChatModel(
        script=Book({"again": again}, Script(Turn(load()), Turn(read()), Turn(Say("So."))))
    )
    async with supervisor(model, tools=[version.tool], skills=catalog) as client:
        before = await client.ask("Go.")
        assert body in model.requests[-1].system
        assert results(model.requests[-1], "read_skill_file") == [detail]
        count = len(model.requests)
        after = await client.ask("Once again.", contextId=before.context_id)
    later = model.requests[count:]
    assert after.answer == f"It is {version.value}."
    assert not any(body in str(message) or detail in str(message) for message in later)
    assert "version" in later[0].tools
    assert notices(after) == []


async def test_an_agent_sees_no_skills(tmp_path: Path) -> None:
    body = token()
    catalog = await stocked(tmp_path, skill_files(TRIAGE, body, description="What to do first."))
    inner = scripted(Turn(Say("I am jira.")))
    model = scripted(
        Turn(load()), Turn(delegate("jira", f"/{TRIAGE} of payments")), Turn(Say("{{tool:jira}}"))
    )
    async with supervisor(model, agents=[agent("jira", inner)], skills=catalog) as client:
        assert (await client.ask("Go.")).answer == "I am jira."
    (request,) = inner.requests
    assert request.last_user == f"/{TRIAGE} of payments"
    assert not {"load_skill", "read_skill_file", "find_skills"} & set(request.tools)
    assert body not in str(request)
    assert "What to do first." not in str(request)


async def test_of_a_thousand_the_model_sees_some_and_finds_the_others(tmp_path: Path) -> None:
    for number in range(1_000):
        words = (
            "Rotates the certificates of the mesh."
            if number == 987
            else "Something for a platform. " + "x" * 60
        )
        write_skill(
            tmp_path / "folder" / f"skill-{number:04}", skill_files(f"skill-{number:04}", description=words)
        )
    catalog = catalogue(tmp_path, SkillFolder(tmp_path / "folder"))
    model = scripted(
        Turn(
            Call("find_skills", {"words": "MESH certificates"}),
            Call("find_skills", {"words": "platform"}),
            Call("find_skills", {"words": "none such"}),
        ),
        Turn(load("skill-0987")),
        Turn(Say("So.")),
    )
    async with supervisor(model, skills=catalog) as client:
        stream = await client.ask("Rotate the certificates.")
    listed = model.requests[0].system.partition("# Skills\n")[2]
    lines = [line for line in listed.splitlines() if line.startswith("- skill-")]
    assert 50 < len(lines) < 100
    assert len(listed) < 8_500
    assert listed.endswith(f"\n- ({1_000 - len(lines)} more: find_skills finds them by words.)")
    few, many, none = results(model.requests[1], "find_skills")
    assert few == "- skill-0987: Rotates the certificates of the mesh."
    assert many.count("\n- skill-") == 19
    assert none.startswith("No skill matches. The skills are: skill-0000, skill-0001,")
    assert len(none) < 400
    assert notices(stream)[0].startswith("Skill skill-0987 ")


async def test_where_there_are_none_nothing_is_said_of_them(tmp_path: Path) -> None:
    model = scripted(Turn(load()), Turn(Say("So.")))
    async with supervisor(model, skills=await stocked(tmp_path)) as client:
        await client.ask("Go.")
    assert "# Skills" not in model.requests[0].system
    assert results(model.requests[1], "load_skill") == [f"There is no skill {TRIAGE}. There are no skills."]


# --- called by name -------------------------------------------------------------------------------


@both_versions
async def test_a_question_that_begins_with_a_name_loads_the_skill_before_the_model_says_a_word(
    tmp_path: Path, dialect: Dialect
) -> None:
    body = token()
    catalog = await stocked(tmp_path, skill_files(TRIAGE, body))
    now = await version_of(catalog)
    model = ScriptedChatModel(script=Script(Turn(Say("Never said.")), Turn(Say("I follow it."))))
    async with supervisor(model, skills=catalog) as client:
        stream = await client.ask(f"/{TRIAGE} payments are slow", version=dialect.version)
        again = await client.ask(f"/{TRIAGE}", version=dialect.version, contextId=stream.context_id)
    assert [body in request.system for request in model.requests] == [True, True]
    assert [request.last_user for request in model.requests] == [f"/{TRIAGE} payments are slow", f"/{TRIAGE}"]
    for received in (stream, again):
        assert received.answer == "I follow it."
        assert received.notifications == [
            "🔧 Supervisor: Calling tool: Load_Skill\n",
            "✅ Supervisor: Tool Load_Skill completed\n",
        ]
        assert notices(received) == [f"Skill {TRIAGE} (version {now}) is in use."]


CALLED = [f"  /{TRIAGE} x", f"\n/{TRIAGE}\nx", f"/{TRIAGE}\tx"]
NOT_CALLED = [
    "/nothing-there x",
    "/off x",
    f"/{TRIAGE}s x",
    f"/{TRIAGE}/x",
    f"//{TRIAGE}",
    f"/ {TRIAGE}",
    f"What is /{TRIAGE}?",
    "/Incident-Triage",
]


async def test_what_begins_with_no_name_goes_to_the_model_as_it_is(tmp_path: Path) -> None:
    body = token()
    catalog = await stocked(tmp_path, skill_files(TRIAGE, body), skill_files("off", body))
    await catalog.set_enabled("off", "stored", False)
    model = ScriptedChatModel(script=Script(Turn(Say("So."))))
    async with supervisor(model, skills=catalog) as client:
        for text in [*CALLED, *NOT_CALLED]:
            await client.ask(text)
    assert [request.last_user for request in model.requests] == [*CALLED, *NOT_CALLED]
    assert [body in request.system for request in model.requests] == [True] * len(CALLED) + [False] * len(
        NOT_CALLED
    )
    assert [request.position for request in model.requests] == [1] * len(CALLED) + [0] * len(NOT_CALLED)


async def test_ask_calls_a_skill_by_name(tmp_path: Path) -> None:
    body = token()
    catalog = await stocked(tmp_path, skill_files(TRIAGE, body))
    model = ScriptedChatModel(script=Script(Turn(Say("No skill.")), Turn(Say("I follow it."))))
    async with supervisor(model, skills=catalog) as client:
        done = await invoke_caipe("ask", f"/{TRIAGE}", "payments", "are slow", env={"CAIPE_URL": client.url})
    assert (done.code, done.out) == (0, "I follow it.\n")
    assert f"Skill {TRIAGE} (version {await version_of(catalog)}) is in use." in done.err
    assert [(request.last_user, body in request.system) for request in model.requests] == [
        (f"/{TRIAGE} payments are slow", True)
    ]


async def test_a_chat_calls_a_skill_by_name(tmp_path: Path) -> None:
    body = token()
    catalog = await stocked(tmp_path, skill_files(TRIAGE, body))
    model = ScriptedChatModel(script=Script(Turn(Say("I follow it."))))
    async with (
        supervisor(model, skills=catalog) as client,
        start_in_terminal("caipe", "chat", "--url", client.url) as screen,
    ):
        at = await screen.wait_for_text("›", await screen.wait_for_text("Ask in plain words"))
        screen.type(f"/{TRIAGE} payments are slow\r")
        at = await screen.wait_for_text(
            "›", await screen.wait_for_text("I follow it", await screen.wait_for_text(f"Skill {TRIAGE} ", at))
        )
        screen.type("/nothing-there x\r")
        at = await screen.wait_for_text(
            "›", await screen.wait_for_text("There is no command or skill /nothing-there", at)
        )
        screen.type("/quit\r")
        assert await screen.wait_for_exit() == 0
    assert [request.last_user for request in model.requests] == [f"/{TRIAGE} payments are slow"]
    assert [body in request.system for request in model.requests] == [True]


async def test_people_in_slack_call_a_skill_by_name(tmp_path: Path) -> None:
    body = token()
    catalog = await stocked(tmp_path, skill_files(TRIAGE, body))
    model = ScriptedChatModel(script=Script(Turn(Say("No skill.")), Turn(Say("I follow it."))))
    async with (
        FakeSlack(clock=ScaledClock(), limits=LIMITS) as slack,
        supervisor(model, skills=catalog) as client,
    ):
        on = BotHarness(slack, client, tmp_path / "bot-home")
        async with on.bot():
            ts = await slack.say(f"/{TRIAGE} payments are slow", mention=True)
            assert join_texts(await on.wait_for_turns("C1", ts)) == "I follow it."
            ts = await slack.say("/nothing-there x", mention=True)
            assert join_texts(await on.wait_for_turns("C1", ts)) == "No skill."
    assert [body in request.system for request in model.requests] == [True, False]
    assert model.requests[0].last_user == f"/{TRIAGE} payments are slow"


async def test_without_a_language_model_it_is_said_that_one_is_needed(tmp_path: Path) -> None:
    catalog = await stocked(tmp_path, skill_files(TRIAGE))
    async with skilled(catalog, None) as client:
        stream = await client.ask(f"/{TRIAGE} payments are slow")
        other = await client.ask("/nothing-there x")
    assert (
        stream.answer == f"The skill {TRIAGE} needs a language model, and none is configured: set LLM_MODEL."
    )
    assert (stream.last.state, stream.notifications) == ("completed", [])
    assert (other.last.state, "needs a language model" in other.answer) == ("completed", False)


# --- which version --------------------------------------------------------------------------------

Change = Callable[[SkillCatalog], Awaitable[Any]]

V1 = skill_files(TRIAGE, "Body one.", references__guide="Guide one.")
V2 = skill_files(TRIAGE, "Body two.", references__guide="Guide two.")
CHANGES: dict[str, Change] = {
    "changed": lambda catalog: catalog.update(TRIAGE, V2),
    "removed": lambda catalog: catalog.delete(TRIAGE),
    "disabled": lambda catalog: catalog.set_enabled(TRIAGE, "stored", False),
    "blocked": lambda catalog: catalog.update(TRIAGE, skill_files(TRIAGE, BLOCKED)),
}


@pytest.mark.parametrize("change", CHANGES)
async def test_a_run_keeps_its_version_and_the_next_one_has_the_new(tmp_path: Path, change: str) -> None:
    catalog = await stocked(tmp_path, V1)
    was = await version_of(catalog)

    async def meanwhile() -> str:
        await CHANGES[change](catalog)
        return "Done."

    model = ScriptedChatModel(
        script=Book(
            {"": Script(Turn(load()), Turn(Call("meanwhile")), Turn(load()), Turn(read()), Turn(Say("So.")))}
        )
    )
    async with supervisor(model, tools=[tool("meanwhile", meanwhile)], skills=catalog) as client:
        stream = await client.ask("Go.")
        before = list(model.requests)
        called = await client.ask(f"/{TRIAGE} now")
    last = before[-1]
    assert [("Body one." in request.system, "Body two." in request.system) for request in before] == [
        (False, False),
        *[(True, False)] * 4,
    ]
    assert results(last, "read_skill_file") == ["Guide one."]
    assert [f"(version {was})" in text for text in results(last, "load_skill")] == [True, True]
    assert notices(stream) == [f"Skill {TRIAGE} (version {was}) is in use."]
    begun = model.requests[len(before)]
    assert ("Body two." in begun.system) == (change == "changed")
    assert BLOCKED not in begun.system
    assert "Body one." not in begun.system
    assert len(notices(called)) == (1 if change == "changed" else 0)


@pytest.mark.parametrize("change", CHANGES)
async def test_after_a_restart_a_run_goes_on_with_the_version_that_there_is(
    tmp_path: Path, change: str
) -> None:
    catalog, form = await stocked(tmp_path, V1), form_tool("form", [{"field_name": "name"}])
    model = scripted(Turn(load()), Turn(Call("form")), Turn(load(), read()), Turn(Say("So.")))
    async with skilled(catalog, model, storage=in_folder(tmp_path), tools=[form]) as client:
        paused = await ask_until_paused(client)
    await CHANGES[change](catalog)
    await catalog.close()
    async with skilled(catalogue(tmp_path), model, storage=in_folder(tmp_path), tools=[form]) as client:
        done = await send_answers(client, paused, {request_ids(paused)[0]: {"name": "cai"}})
    assert done.answer == "So."
    third, last = model.requests[2:]
    assert "Body one." not in third.system
    if change == "changed":
        assert "Body two." in third.system
        assert results(last, "read_skill_file") == ["Guide two."]
    else:
        assert (
            f"(The skill {TRIAGE} was removed while it was in use. Go on without it, and say so.)"
            in third.system
        )
        assert "There is no skill" in results(last, "read_skill_file")[0]
        assert results(last, "load_skill")[1] == f"There is no skill {TRIAGE}. There are no skills."
    assert BLOCKED not in third.system


async def test_after_a_restart_a_run_goes_on_with_a_skill_that_did_not_change(tmp_path: Path) -> None:
    catalog, form = await stocked(tmp_path, V1), form_tool("form", [{"field_name": "name"}])
    model = scripted(Turn(load()), Turn(read()), Turn(Call("form")), Turn(Say("So.")))
    async with skilled(catalog, model, storage=in_folder(tmp_path), tools=[form]) as client:
        paused = await ask_until_paused(client)
    async with skilled(catalogue(tmp_path), model, storage=in_folder(tmp_path), tools=[form]) as client:
        await send_answers(client, paused, {request_ids(paused)[0]: {"name": "cai"}})
    assert "Body one." in model.requests[-1].system
    assert results(model.requests[-1], "read_skill_file") == ["Guide one."]
