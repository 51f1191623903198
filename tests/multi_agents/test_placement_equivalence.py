"""The proof that placement is invisible: three agents in all eight placements give the same events and the
same text in the terminal.
"""

import asyncio
import contextlib
import itertools
import json
import secrets
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from ai_platform_engineering.core.events import (
    Answered,
    AnyEvent,
    Notice,
    PlanUpdated,
    TextDelta,
    ToolFinished,
    ToolStarted,
)
from tests.support.fakes.lossy_proxy import LossyProxy
from tests.support.fakes.mcp_desk import found
from tests.support.fakes.mcp_servers import FAKES
from tests.support.fakes.openai_server import OpenAIServer
from tests.support.fakes.request import Request, text_of
from tests.support.fakes.serving import serving
from tests.support.harness import PLAIN, Client, serve_app
from tests.support.placement_script import CASTING, QUESTIONS
from tests.support.placements import difference, normalize_events, normalize_screen
from tests.support.processes import CommandResult, Program, invoke_caipe, start_command

AGENTS = ("atlas", "harbor", "vault")
PLACEMENTS = [frozenset(remote) for count in range(4) for remote in itertools.combinations(AGENTS, count)]
HERE, ELSEWHERE = 0.25, 0.75  # the temperature of a model request tells which process made it
LOOKED = (("release", "atlas"), ("east dock", "harbor"), ("west dock", "harbor"))


class Models(OpenAIServer):
    """Counts what a conversation costs without the system prompt, which for the supervisor lists the tools
    that are known here.
    """

    def parse(self, body: dict[str, Any]) -> Request:
        return replace(super().parse(body), system="")


@dataclass(frozen=True, slots=True)
class Recording:
    """A conversation of three turns as events and another in the terminal, and what the models were asked
    for both.
    """

    remote: frozenset[str]
    turns: Sequence[Sequence[AnyEvent]]
    shown: Sequence[CommandResult]
    asked: Sequence[Request]


@dataclass(frozen=True, slots=True)
class World:
    """The far ends that all supervisors share: models, and a service for each agent."""

    folder: Path
    models: Models
    seal: str
    urls: Mapping[str, str]

    def variables(self, temperature: float, home: str) -> dict[str, str]:
        return {
            "LLM_MODEL": "openai:supervisor",
            "LLM_TEMPERATURE": str(temperature),
            "LLM_ATTEMPTS": "2",
            "LLM_RETRY_SECONDS": "0",
            "LLM_FALLBACK_MODELS": "openai:spare",
            "OPENAI_BASE_URL": self.models.url,
            "OPENAI_API_KEY": "scripted",
            "AGENTS_CONFIG": str(self.folder / "agents"),
            "CAIPE_HOME": str(self.folder / home),
            "ENABLE_NETUTILS": "false",
            "ASK_ON_UNTRUSTED_CONTENT": "false",  # the tools of the desk say nothing of what they do
        }

    def sealed(self, agent: str) -> dict[str, str]:
        return {"VAULT_SEAL": self.seal} if agent == "vault" else {}

    @contextlib.asynccontextmanager
    async def supervisor(
        self, remote: frozenset[str], urls: Mapping[str, str] | None = None
    ) -> AsyncIterator[tuple[Program, Client]]:
        """The supervisor as a process; it has the variable that one agent requires only when that agent is
        its own.
        """
        placed = {f"{name.upper()}_AGENT_URL": (urls or self.urls)[name] for name in remote}
        env = {
            **self.variables(HERE, f"home-{'-'.join(sorted(remote))}"),
            **placed,
            "DISTRIBUTED_AGENTS": ",".join(remote),
            **({} if "vault" in remote else self.sealed("vault")),
        }
        async with (
            start_command("caipe", "serve", "--port", "0", env=env) as program,
            httpx.AsyncClient(timeout=120, verify=PLAIN) as http,
        ):
            yield program, Client((await program.wait_for_stderr(r"serving on (http://\S+)"))[1], http)


@contextlib.asynccontextmanager
async def world(folder: Path, remote: Sequence[str] = AGENTS) -> AsyncIterator[World]:
    """The models and the services of these agents, each a process."""
    seal = secrets.token_hex(8)
    (folder / "agents").mkdir()
    for name in AGENTS:
        own = "${VAULT_SEAL}" if name == "vault" else f"the seal of {name}"
        server = {
            "command": sys.executable,
            "args": ["-S", str(FAKES / "mcp_desk.py")],
            "env": {"DESK_SEAL": own},
        }
        definition = {
            "name": name,
            "description": f"Knows the {name}.",
            "prompt": f"You keep the {name}.",
            "model": f"openai:{name}",
            "mcpServers": {f"{name}-desk": server},
            "requires": ["VAULT_SEAL"] if name == "vault" else [],
        }
        (folder / "agents" / f"{name}.json").write_text(json.dumps(definition))
    async with serving(Models(CASTING)) as models, contextlib.AsyncExitStack() as stack:
        bare = World(folder, models, seal, {})
        services = {
            name: await stack.enter_async_context(
                start_command(
                    "caipe",
                    "agent",
                    name,
                    "--port",
                    "0",
                    env={**bare.variables(ELSEWHERE, f"service-{name}"), **bare.sealed(name)},
                )
            )
            for name in remote
        }
        yield replace(
            bare,
            urls={
                name: (await service.wait_for_stderr(r"serving on (http://\S+)"))[1]
                for name, service in services.items()
            },
        )


async def converse(client: Client) -> list[list[AnyEvent]]:
    """All questions on one context, over the wire."""
    first = await client.ask(QUESTIONS[0], version="1.0")
    turns = [first.events]
    for question in QUESTIONS[1:]:
        turns.append((await client.ask(question, version="1.0", contextId=first.context_id)).events)
    return turns


async def in_terminal(client: Client) -> list[CommandResult]:
    context = secrets.token_hex(8)
    return [
        await invoke_caipe("ask", question, "--context", context, env={"CAIPE_URL": client.url})
        for question in QUESTIONS
    ]


async def record(
    here: World, remote: frozenset[str], starting: asyncio.Semaphore, talking: asyncio.Lock
) -> Recording:
    async with starting, here.supervisor(remote) as (_, client):
        ready = (await client.http.get(f"{client.url}ready")).json()["components"]
        assert {name for name in AGENTS if ready[f"agent {name}"]["placement"] == "remote"} == remote
        async with talking:  # one at a time: the models cannot tell the supervisors apart
            before = len(here.models.requests)
            turns, screens = await converse(client), await in_terminal(client)
            return Recording(remote, turns, screens, here.models.requests[before:])


def put_to_models(recording: Recording) -> list[str]:
    """What the models were asked, without ids: the conversation, the tools, and for an agent its prompt,
    too.
    """
    return sorted(
        json.dumps(
            [request.model, prompt(request) if request.model in AGENTS else "", request.tools, said(request)]
        )
        for request in recording.asked
    )


def prompt(request: Request) -> str:
    return text_of(request.raw["messages"][0]["content"])


def said(request: Request) -> list[Any]:
    return [
        [m.role, m.text, m.tool, [[call.name, call.args] for call in m.tool_calls]] for m in request.messages
    ]


def processes_of(recording: Recording, agent: str) -> set[float]:
    return {request.raw["temperature"] for request in recording.asked if request.model == agent}


def damaged(events: Sequence[AnyEvent]) -> Iterator[tuple[str, list[AnyEvent]]]:
    """The run with one thing wrong, in every place where it can be."""
    for at, event in enumerate(events):
        before, after = list(events[:at]), list(events[at + 1 :])
        yield f"lost {at}: {event.kind}", [*before, *after]
        yield f"doubled {at}: {event.kind}", [*before, event, event, *after]
        other = "harbor" if event.agent == "atlas" else "atlas"
        yield (
            f"swapped agent {at}: {event.kind}",
            [*before, event.model_copy(update={"agent": other}), *after],
        )
        if isinstance(event, TextDelta):
            yield f"repeated text {at}", [*before, event.model_copy(update={"text": event.text * 2}), *after]
        if isinstance(event, ToolStarted | ToolFinished) and event.delegates:
            called = "harbor" if event.tool == "atlas" else "atlas"
            yield f"swapped delegation {at}", [*before, event.model_copy(update={"tool": called}), *after]
        if (
            event.parent_call
            and after
            and after[0].parent_call == event.parent_call
            and not isinstance(event, TextDelta)
        ):
            yield f"changed order {at}: {event.kind}", [*before, after[0], event, *after[1:]]


@pytest.mark.timeout(400)  # eleven processes; a busy machine takes its time to start them
@pytest.mark.full
async def test_all_eight_placements_give_the_same_events_and_the_same_screen(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        starting, talking = asyncio.Semaphore(2), asyncio.Lock()
        recordings = await asyncio.gather(*(record(here, remote, starting, talking) for remote in PLACEMENTS))
    first = recordings[0]
    assert here.models.refusals == []
    for other in recordings:
        where = f"remote: {', '.join(sorted(other.remote)) or 'none'}"
        for turn, same in zip(other.turns, first.turns, strict=True):
            assert difference(normalize_events(same), normalize_events(turn)) == "", where
        for done, alike in zip(other.shown, first.shown, strict=True):
            assert difference(normalize_screen(alike.err), normalize_screen(done.err)) == "", where
        assert [(done.code, done.out) for done in other.shown] == [
            (done.code, done.out) for done in first.shown
        ], where
        assert put_to_models(other) == put_to_models(first), where
        for agent in AGENTS:
            assert processes_of(other, agent) == {ELSEWHERE if agent in other.remote else HERE}, where
    expect_the_conversation(first, here.seal)
    expect_the_plan(first)
    expect_every_damage_to_be_seen(recordings[-1])


def expect_the_conversation(recording: Recording, seal: str) -> None:
    """It was the one that was meant: else equality would say little."""
    checked, before, twice_done = (turn[-1] for turn in recording.turns)
    release, east, west = (found(at, f"the seal of {agent}") for at, agent in LOOKED)
    remembered = f"Find the release. / The release has {release}."
    docks, vault = f"The west dock has {west}.", f"The vault has {found('vault', seal)}."
    assert isinstance(checked, Answered)
    assert isinstance(before, Answered)
    assert checked.text == f"Release: I remember: {remembered} Docks: {docks} Vault: {vault}"
    twice = f"{remembered} / What do you remember? / I remember: {remembered}"
    harbor = f"Check the east dock. / The east dock has {east}."
    assert before.text.startswith(
        f"Atlas: I remember: {twice} Harbor: I remember: {harbor} Vault: Agent vault failed:"
    )
    assert isinstance(twice_done, Answered)
    assert twice_done.text == f"Docks: {docks} Vault: Nobody is in."
    assert [done.out for done in recording.shown] == [
        f"{answered.text}\n" for answered in (checked, before, twice_done)
    ]
    kinds = {event.kind for turn in recording.turns for event in turn}
    notices = [event for turn in recording.turns for event in turn if isinstance(event, Notice)]
    starts = {notice.agent for notice in notices if notice.text.startswith("Starting the tool server ")}
    assert starts <= set(AGENTS)
    assert kinds >= {"plan_updated", "tool_progress", "text_discarded", "notice"}
    assert "fail failed: the handle is stuck" in recording.shown[0].err
    requests = [
        said(request)
        for request in recording.asked
        if request.model == "atlas" and request.last_user == "What do you remember?"
    ]
    assert all(["user", "Find the release.", None, []] in messages for messages in requests)
    assert [len(messages) for messages in requests] == [7, 9] * 2


def expect_the_plan(recording: Recording) -> None:
    """Each delegation has its step, and each step the state of its delegations."""
    events = recording.turns[2]
    steps = [
        (event.tool, event.step_id) for event in events if isinstance(event, ToolStarted) and event.delegates
    ]
    assert sorted(steps[:7], key=str) == [
        ("atlas", "step-1"),
        ("atlas", "step-1"),
        ("harbor", "step-2"),
        ("harbor", "step-3"),
        ("vault", "step-4"),
        ("vault", "step-4"),
        ("vault", "step-5"),
    ]
    assert sorted(steps[7:], key=str) == [("nobody", "step-2"), ("vault", "step-4")]
    paths: dict[str, list[str]] = {}
    for event in events:
        if isinstance(event, PlanUpdated):
            for step in event.steps:
                path = paths.setdefault(step.step_id, [])
                if path[-1:] != [step.status]:
                    path.append(step.status)
    done = ["pending", "in_progress", "completed"]
    failed = ["pending", "in_progress", "failed"]
    assert paths == {
        "step-1": done,
        "step-2": [*done, "in_progress", "failed"],
        "step-3": done,
        "step-4": [*failed, "in_progress", "completed"],
        "step-5": failed,
        "step-6": ["pending", "completed"],
    }
    assert "Plan (0 of 6)\n" in recording.shown[2].err


def expect_every_damage_to_be_seen(recording: Recording) -> None:
    for turn in recording.turns:
        undamaged = normalize_events(turn)
        unseen = [what for what, events in damaged(turn) if normalize_events(events) == undamaged]
        assert unseen == []
    for done in recording.shown:
        lines = done.err.splitlines()
        unseen = [
            line
            for at, line in enumerate(lines)
            if normalize_screen("\n".join([*lines[:at], *lines[at + 1 :]])) == normalize_screen(done.err)
        ]
        assert unseen == []


async def test_a_frame_that_is_lost_on_the_way_is_fetched_again(tmp_path: Path) -> None:
    async with world(tmp_path, ["atlas"]) as here, httpx.AsyncClient(timeout=120, verify=PLAIN) as http:
        proxy = LossyProxy(here.urls["atlas"], http)
        async with (
            serve_app(proxy.app) as url,
            here.supervisor(frozenset({"atlas"}), {"atlas": url}) as (_, client),
        ):
            await client.ask(QUESTIONS[0], version="1.0")  # the first shows the starts of tool servers
            undamaged = normalize_events((await client.ask(QUESTIONS[0], version="1.0")).events)
            for mark, times in (
                (b"tool_notification_start", 2),
                (b"tool_notification_end", 1),
                (b"streaming_result", 1),
            ):
                proxy.lose(mark, times)
                stream = await client.ask(QUESTIONS[0], version="1.0")
                assert difference(undamaged, normalize_events(stream.events)) == ""
                assert len(proxy.lost) == times


def test_agents_at_work_at_the_same_time_may_interleave_in_any_way() -> None:
    first, second = ([_started(name), _wrote(name), _finished(name)] for name in ("atlas", "harbor"))
    mixed = [first[0], second[0], second[1], first[1], second[2], first[2]]
    assert normalize_events(mixed) == normalize_events([*first, *second])
    calls = "🔧 Supervisor: Calling Agent Atlas...\n🔧 Supervisor: Calling Agent Harbor...\n"
    atlas, two = "✅ Supervisor: Atlas completed\n", "✅ Supervisor: Harbor completed\n"
    assert normalize_screen(calls + atlas + two) == normalize_screen(calls + two + atlas)
    assert normalize_screen(calls + atlas + two) != normalize_screen(calls + atlas + atlas)


def test_a_delegation_after_another_is_not_one_beside_it() -> None:
    first, second = ([_started(name), _wrote(name), _finished(name)] for name in ("atlas", "harbor"))
    between = TextDelta(message_id="m", offset=0, text="And now?")
    assert normalize_events([*first, between, *second]) != normalize_events([*first, *second, between])
    assert normalize_events([*first, between, *second]) != normalize_events(
        [first[0], between, *first[1:], *second]
    )


def _started(agent: str) -> ToolStarted:
    return ToolStarted(call_id=f"call {agent}", tool=agent, delegates=True)


def _wrote(agent: str) -> TextDelta:
    return TextDelta(
        message_id=f"text {agent}", offset=0, text=f"I am {agent}.", agent=agent, parent_call=f"call {agent}"
    )


def _finished(agent: str) -> ToolFinished:
    return ToolFinished(call_id=f"call {agent}", tool=agent, delegates=True)
