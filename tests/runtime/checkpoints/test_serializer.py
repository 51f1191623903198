"""What a checkpoint may hold: the types that we store come back, and anything else is refused unread."""

import json
import pickle
import sqlite3
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import ormsgpack
import pytest
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.tools import BaseTool, tool
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Interrupt, Send

from ai_platform_engineering.multi_agents.platform_engineer.response import (
    CitedSource,
    PlatformEngineerResponse,
)
from ai_platform_engineering.runtime.checkpoints.checkpointer import CHECKPOINT_FILE
from ai_platform_engineering.runtime.checkpoints.fenced_saver import FencedSaver
from ai_platform_engineering.runtime.checkpoints.serializer import (
    STORED_TYPES,
    CheckpointRefused,
    CheckpointSerializer,
)
from ai_platform_engineering.runtime.log.memory_log import MemoryLog
from tests.support.asking_agent import DELEGATING, Repos, github
from tests.support.checkpoint_databases import EVERY, Database, over
from tests.support.fakes.model import ScriptedChatModel
from tests.support.fakes.script import Call, Say, Script, Turn
from tests.support.harness import Client
from tests.support.storages import in_folder, supervisor_on

SERIALIZER = CheckpointSerializer()

STORED_VALUES: list[Any] = [
    HumanMessage("Hello", id="1", additional_kwargs={"owner": "me"}),
    AIMessage(
        "Hi", id="2", tool_calls=[{"name": "look", "args": {"at": [1]}, "id": "c", "type": "tool_call"}]
    ),
    AIMessageChunk("Hi"),
    ToolMessage("4", tool_call_id="c", name="look", artifact={"rows": [1, 2]}),
    SystemMessage("Be brief."),
    RemoveMessage(id="2"),
    Send("tools", {"call": AIMessage("again")}),
    Interrupt(value={"type": "form"}, id="i1"),
    PlatformEngineerResponse(content="It is 4.", citations=[CitedSource(title="Sums")]),
    CitedSource(title="Sums"),
    datetime(2026, 1, 2, 3, 4, tzinfo=UTC),
    date(2026, 1, 2),
    time(3, 4, tzinfo=UTC),
    timedelta(seconds=4),
    UTC,
    UUID(int=4),
    Decimal("4.20"),
    {1, 2},
    frozenset({3}),
]


@pytest.mark.parametrize("value", STORED_VALUES, ids=lambda value: type(value).__name__)
def test_every_listed_type_comes_back_as_it_was(value: Any) -> None:
    restored = SERIALIZER.loads_typed(SERIALIZER.dumps_typed({"channel": [value]}))
    assert restored == {"channel": [value]}
    assert type(restored["channel"][0]) is type(value)


def test_the_list_has_no_type_that_is_not_tried_here() -> None:
    assert {(type(value).__module__, type(value).__name__) for value in STORED_VALUES} == set(STORED_TYPES)


def test_no_graph_makes_the_list_longer() -> None:
    saver = FencedSaver(lambda: InMemorySaver(serde=SERIALIZER), MemoryLog())
    assert saver.with_allowlist([("os", "system")]) is saver
    assert SERIALIZER.with_msgpack_allowlist([("os", "system")]) is SERIALIZER


# --- crafted blobs ------------------------------------------------------------------------------------------


def extension(code: int, *envelope: Any) -> bytes:
    """A blob as LangGraph writes it: an extension that names what its reader shall call."""
    return ormsgpack.packb({"channel": ormsgpack.Ext(code, ormsgpack.packb(envelope))})


def in_a_message(blob: bytes) -> bytes:
    """The blob inside the stored form of a message."""
    values = {"content": "Hi", "additional_kwargs": ormsgpack.unpackb(blob, ext_hook=ormsgpack.Ext)}
    message = ("langchain_core.messages.ai", "AIMessage", values, "model_validate_json")
    return ormsgpack.packb({"channel": ormsgpack.Ext(5, ormsgpack.packb(message))})


class Reducing:
    """An object whose pickle runs a command."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        import os

        return os.system, (self.command,)


CRAFTED: dict[str, Callable[[str], tuple[str, bytes]]] = {
    "one argument": lambda command: ("msgpack", extension(0, "os", "system", command)),
    "arguments": lambda command: ("msgpack", extension(1, "os", "system", [command])),
    "named arguments": lambda command: (
        "msgpack",
        extension(2, "subprocess", "run", {"args": command, "shell": True}),
    ),
    "method": lambda command: ("msgpack", extension(3, "os", "system", command, "__call__")),
    "method of a listed type": lambda command: (
        "msgpack",
        extension(3, "datetime", "datetime", command, "strptime"),
    ),
    "old model": lambda command: (
        "msgpack",
        extension(4, "subprocess", "run", {"args": command, "shell": True}),
    ),
    "model": lambda command: (
        "msgpack",
        extension(5, "subprocess", "Popen", {"args": command, "shell": True}, "model_validate_json"),
    ),
    "listed type in another form": lambda command: (
        "msgpack",
        extension(0, "langgraph.types", "Send", command),
    ),
    "array": lambda command: ("msgpack", extension(6, "O", [1], "C", command.encode())),
    "regular expression": lambda command: ("msgpack", extension(1, "re", "compile", [command, 0])),
    "no name": lambda command: ("msgpack", extension(0, ["os"], {"a": 1}, command)),
    "unknown code": lambda command: ("msgpack", extension(99, "os", "system", command)),
    "inside a message": lambda command: ("msgpack", in_a_message(extension(0, "os", "system", command))),
    "json": lambda command: (
        "json",
        json.dumps({"lc": 2, "type": "constructor", "id": ["os", "system"], "args": [command]}).encode(),
    ),
    "json of the library": lambda command: (
        "json",
        json.dumps(
            {"lc": 1, "type": "constructor", "id": ["langchain", "schema", "messages", "AIMessage"]}
        ).encode(),
    ),
    "pickle": lambda command: ("pickle", pickle.dumps(Reducing(command))),
    "not msgpack": lambda command: ("msgpack", b"\xc1" + command.encode()),
}


@pytest.mark.parametrize("craft", CRAFTED.values(), ids=CRAFTED.keys())
def test_a_crafted_blob_is_refused_and_runs_nothing(
    craft: Callable[[str], tuple[str, bytes]], tmp_path: Path
) -> None:
    ran = tmp_path / "ran"
    with pytest.raises(CheckpointRefused) as refusal:
        SERIALIZER.loads_typed(craft(f"touch {ran}"))
    assert not ran.exists()
    assert "Start a new conversation" in str(refusal.value)


def test_a_blob_nested_without_end_is_refused() -> None:
    blob = ormsgpack.packb(1)
    for _ in range(3000):
        blob = ormsgpack.packb(ormsgpack.Ext(0, ormsgpack.packb(["builtins", "set", []])[:-1] + blob))
    with pytest.raises(CheckpointRefused):
        SERIALIZER.loads_typed(("msgpack", blob))


def test_a_refusal_quotes_little_of_what_it_read() -> None:
    with pytest.raises(CheckpointRefused) as refusal:
        SERIALIZER.loads_typed(("msgpack", extension(0, "\x1b[2J\u202e" + "x" * 100_000, "system", "")))
    assert str(refusal.value).isprintable()
    assert len(str(refusal.value)) < 1000


# --- every database -----------------------------------------------------------------------------------------


def make_hostile(command: str) -> Any:
    """A value that LangGraph stores under the name `os.system`, with the command as its argument."""
    hostile = type("system", (), {"__module__": "os", "get_secret_value": lambda self: self.secret})()
    hostile.secret = command
    return hostile


@over(*EVERY)
@pytest.mark.parametrize("place", ["channel", "write"])
async def test_no_database_gives_back_what_is_not_on_the_list(
    database: Database, place: str, tmp_path: Path
) -> None:
    ran = tmp_path / "ran"
    where: Any = {"configurable": {"thread_id": str(uuid4()), "checkpoint_ns": ""}}
    checkpoint = empty_checkpoint()
    hostile = make_hostile(f"touch {ran}")
    if place == "channel":
        checkpoint["channel_values"] = {"messages": [hostile]}
        checkpoint["channel_versions"] = {"messages": "1"}
    async with database.open() as checkpoints:
        saver = checkpoints.saver
        stored = await saver.aput(where, checkpoint, {}, checkpoint["channel_versions"])
        if place == "write":
            await saver.aput_writes(stored, [("messages", hostile)], "task")
        with pytest.raises(CheckpointRefused, match=r"os\.system"):
            await saver.aget_tuple(where)
        assert not ran.exists()


@over(*EVERY)
async def test_every_database_gives_back_what_we_store(database: Database) -> None:
    where: Any = {"configurable": {"thread_id": str(uuid4()), "checkpoint_ns": ""}}
    messages = STORED_VALUES[:6]
    answer = STORED_VALUES[8]
    checkpoint = empty_checkpoint()
    checkpoint["channel_values"] = {"messages": messages, "structured_response": answer, "names": {"a"}}
    checkpoint["channel_versions"] = dict.fromkeys(checkpoint["channel_values"], "1")
    writes = [
        ("messages", messages),
        ("__interrupt__", [Interrupt(value={"a": 1}, id="i1")]),
        ("branch", None),
    ]
    async with database.open() as checkpoints:
        saver = checkpoints.saver
        stored = await saver.aput(where, checkpoint, {"step": 1}, checkpoint["channel_versions"])
        await saver.aput_writes(stored, writes, "task")
        restored = await saver.aget_tuple(where)
        assert restored is not None
        assert restored.checkpoint["channel_values"] == checkpoint["channel_values"]
        assert {channel: value for _, channel, value in restored.pending_writes or ()} == dict(writes)


# --- through the server -------------------------------------------------------------------------------------


def counting() -> BaseTool:
    @tool
    async def count() -> str:
        """Counts."""
        return "sum=4"

    return count


def conversing() -> ScriptedChatModel:
    return ScriptedChatModel(script=Script(Turn(Call("count", {})), Turn(Say("It is {{tool:count.sum}}."))))


@pytest.mark.parametrize("table", ["checkpoints", "writes"])
async def test_a_crafted_row_in_the_database_fails_the_run_and_nothing_else(
    tmp_path: Path, table: str
) -> None:
    ran = tmp_path / "ran"
    async with supervisor_on(in_folder(tmp_path), conversing(), tools=[counting()]) as client:
        first = await client.ask("Count")
        assert first.answer == "It is 4."
    rows_before = craft_row(tmp_path / "supervisor" / CHECKPOINT_FILE, table, f"touch {ran}")
    async with supervisor_on(in_folder(tmp_path), conversing(), tools=[counting()]) as client:
        second = await client.ask("Count again", contextId=first.context_id)
        assert second.last.state == "failed"
        assert "os.system" in second.last.status_text
        assert "Start a new conversation" in second.last.status_text
        assert (await client.ask("Count elsewhere")).answer == "It is 4."
        assert (await client.http.get(f"{client.url}health")).status_code == 200
    assert not ran.exists()
    with sqlite3.connect(tmp_path / "supervisor" / CHECKPOINT_FILE) as database:
        rows = database.execute(f"SELECT thread_id FROM {table}").fetchall()
    assert set(rows_before) <= set(rows), "what was refused is still there"


def craft_row(path: Path, table: str, command: str) -> list[tuple[str]]:
    """Writes a call of os.system into the database as somebody with access to the file could."""
    blob = extension(0, "os", "system", command)
    database = sqlite3.connect(path)
    try:
        if table == "checkpoints":
            database.execute("UPDATE checkpoints SET checkpoint = ?", (blob,))
        else:
            database.execute(
                "INSERT INTO writes"
                "(thread_id, checkpoint_ns, checkpoint_id, task_id, idx, channel, type, value)"
                " SELECT thread_id, checkpoint_ns, checkpoint_id, 'task', 0, 'messages', 'msgpack', ?"
                " FROM checkpoints WHERE checkpoint_ns = ''",
                (blob,),
            )
        database.commit()
        return database.execute(f"SELECT thread_id FROM {table}").fetchall()
    finally:
        database.close()


async def test_whatever_a_conversation_stores_can_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dump = CheckpointSerializer.dumps_typed
    blobs: list[tuple[str, bytes]] = []

    def record(self: CheckpointSerializer, value: Any) -> tuple[str, bytes]:
        blobs.append(dump(self, value))
        return blobs[-1]

    monkeypatch.setattr(CheckpointSerializer, "dumps_typed", record)
    repos = Repos()
    structured = {"USE_STRUCTURED_RESPONSE": "true"}
    answering = Script(
        Turn(Call("count", {})), Turn(Call("PlatformEngineerResponse", {"content": "It is 4."}))
    )
    model = ScriptedChatModel(script=answering)
    async with supervisor_on(in_folder(tmp_path), model, tools=[counting()], env=structured) as client:
        assert (await client.ask("Count")).answer == "It is 4."
    agents: Any = [github(repos, {"name": "a"}, {"name": "b"})]
    delegating = ScriptedChatModel(script=DELEGATING)
    async with supervisor_on(in_folder(tmp_path), delegating, agents=agents) as client:
        stream = await client.ask("Create")
        assert stream.last.state == "input-required"
        await answer_all(client, stream.context_id)
    assert len(repos.made) == 2
    for blob in blobs:
        SERIALIZER.loads_typed(blob)
    written = b"".join(blob for _, blob in blobs)
    for name in (b"PlatformEngineerResponse", b"Interrupt", b"Send", b"ToolMessage"):
        assert name in written


async def answer_all(client: Client, context_id: str) -> None:
    """Approves whatever the conversation waits for."""
    decisions = [{"type": "approve", "action_name": "create_repo"}] * 2
    message = client.message("", contextId=context_id)
    message["parts"] = [{"kind": "data", "data": {"resume": {"decisions": decisions}}}]
    result = await client.call("message/send", {"message": message})
    assert result["result"]["status"]["state"] == "completed"
