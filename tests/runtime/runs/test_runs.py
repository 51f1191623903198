"""Runs and their writer over a real log: what is joined, who waits for whom, and that every run ends once."""

import asyncio
import contextlib
import logging
import math
import uuid
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from itertools import groupby

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ai_platform_engineering.a2a.message_parts import hash_parts
from ai_platform_engineering.core.errors import Fenced, MessageConflict, Refused, RunNotFound, WrongState
from ai_platform_engineering.core.events import (
    Answered,
    AnyEvent,
    Cancelled,
    DataPart,
    Failed,
    Form,
    InputField,
    InputRequested,
    InputResolved,
    Notice,
    Paused,
    RunStarted,
    StoredEvent,
    TextDelta,
    TextEnded,
    TextPart,
    ToolStarted,
    is_terminal,
)
from ai_platform_engineering.core.settings import StreamSettings
from ai_platform_engineering.core.transcript import fold
from ai_platform_engineering.runtime.log.log_rows import (
    AnswerMessage,
    EventBatch,
    NewRun,
    PendingRequest,
    RunRow,
)
from ai_platform_engineering.runtime.log.memory_log import MemoryLog
from ai_platform_engineering.runtime.runs.incoming_message import BusyPolicy, IncomingMessage
from ai_platform_engineering.runtime.runs.run_writer import RunWriter, RunWriters
from ai_platform_engineering.runtime.runs.runs import Runs
from ai_platform_engineering.runtime.runs.turn import Turn
from tests.support.examples import scale_examples
from tests.support.run_lists import list_all_runs

WAIT = 120  # seconds after which a wait that never ends is a failure
NEVER = 3600.0

# --- the writer ---------------------------------------------------------------------------------------------


class SlowLog(MemoryLog):
    """A log whose commits take as long as the test wants."""

    def __init__(self) -> None:
        super().__init__()
        self.entered, self.free = asyncio.Event(), asyncio.Event()
        self.free.set()

    async def append(self, run_id: str, epoch: int, events: Sequence[AnyEvent]) -> int:
        self.entered.set()
        await self.free.wait()
        return await super().append(run_id, epoch, events)

    def append_all(self, batches: Sequence[EventBatch]) -> asyncio.Future[list[Exception | None]]:
        async def store() -> list[Exception | None]:
            await self.free.wait()
            return await super(SlowLog, self).append_all(batches)

        self.entered.set()
        return asyncio.ensure_future(store())


async def new_row(log: MemoryLog) -> RunRow:
    started = RunStarted(message_id="m", parts=(TextPart(text="Hello"),))
    row, _ = await log.create(
        NewRun(str(uuid.uuid4()), "context", "ann", str(uuid.uuid4()), "digest", started, lasting_id=True)
    )
    return row


def writer(log: MemoryLog, row: RunRow, *, every: float = NEVER, size: int = 400) -> RunWriter:
    return RunWriters(log, StreamSettings(every=every, size=size)).open(row.run_id, row.epoch)


async def written(log: MemoryLog, row: RunRow) -> list[AnyEvent]:
    """What is stored behind the question."""
    return [item.event for item in await log.read(row.run_id, after=1, limit=10_000)]


class Speaker:
    """Deltas of one message, with the offsets that belong to them."""

    def __init__(
        self, message_id: str = "m", agent: str = "supervisor", parent_call: str | None = None
    ) -> None:
        self.message_id, self.agent, self.parent_call, self.said = message_id, agent, parent_call, ""

    def say(self, text: str) -> TextDelta:
        delta = TextDelta(
            message_id=self.message_id,
            offset=len(self.said),
            text=text,
            agent=self.agent,
            parent_call=self.parent_call,
        )
        self.said += delta.text
        return delta


def deltas(events: Sequence[AnyEvent]) -> list[tuple[str, int, str]]:
    return [(event.message_id, event.offset, event.text) for event in events if isinstance(event, TextDelta)]


async def test_the_first_delta_of_a_message_is_stored_at_once() -> None:
    log, first, second = MemoryLog(), Speaker("one"), Speaker("two")
    row = await new_row(log)
    out = writer(log, row)
    await out.write(first.say("Hel"))
    assert deltas(await written(log, row)) == [("one", 0, "Hel")]
    await out.write(second.say("Al"))
    assert deltas(await written(log, row)) == [("one", 0, "Hel"), ("two", 0, "Al")]


async def test_later_deltas_wait_until_they_are_long_enough_and_become_one() -> None:
    log, speaker = MemoryLog(), Speaker()
    row = await new_row(log)
    out = writer(log, row, size=6)
    for text in ("Hel", "lo", " wo"):
        await out.write(speaker.say(text))
    assert deltas(await written(log, row)) == [("m", 0, "Hel")]
    await out.write(speaker.say("r"))
    assert deltas(await written(log, row)) == [("m", 0, "Hel"), ("m", 3, "lo wor")]
    await out.write(speaker.say("ld"))
    assert len(await written(log, row)) == 2, "the count begins anew"


async def test_later_deltas_are_stored_after_a_while_though_nothing_follows() -> None:
    log, speaker = MemoryLog(), Speaker()
    row = await new_row(log)
    out = writer(log, row, every=0.001)
    for text in ("Hel", "lo", " world"):
        await out.write(speaker.say(text))
    await asyncio.wait_for(log.wait_for_event(row.run_id, 2), WAIT)
    assert deltas(await written(log, row)) == [("m", 0, "Hel"), ("m", 3, "lo world")]
    await out.write(speaker.say("!"))
    await asyncio.wait_for(log.wait_for_event(row.run_id, 3), WAIT)
    assert deltas(await written(log, row))[-1] == ("m", 11, "!")


async def test_without_a_time_to_wait_every_delta_is_stored_as_it_comes() -> None:
    log, speaker = MemoryLog(), Speaker()
    row = await new_row(log)
    out = writer(log, row, every=0)
    for text in ("a", "b", "c"):
        await out.write(speaker.say(text))
    assert [text for _, _, text in deltas(await written(log, row))] == ["a", "b", "c"]


@pytest.mark.parametrize(
    "event",
    [
        TextEnded(message_id="m", role="delegated", parent_call="call"),
        ToolStarted(call_id="c", tool="search"),
        Notice(code="info", text="by the way"),
        Answered(text="Hello world", trace_id="t"),
    ],
    ids=lambda event: event.kind,
)
async def test_any_other_event_comes_after_the_text_before_it(event: AnyEvent) -> None:
    log, speaker = MemoryLog(), Speaker()
    row = await new_row(log)
    out = writer(log, row)
    for text in ("Hello", " wor", "ld"):
        await out.write(speaker.say(text))
    await out.write(event)
    stored = await written(log, row)
    assert deltas(stored) == [("m", 0, "Hello"), ("m", 5, " world")]
    assert stored[-1] == event


async def test_the_end_of_a_text_of_the_run_itself_shares_the_commit_of_what_follows() -> None:
    log, speaker = MemoryLog(), Speaker()
    row = await new_row(log)
    out = writer(log, row)
    for text in ("Hello", " world"):
        await out.write(speaker.say(text))
    end = TextEnded(message_id="m", role="narration")
    await out.write(end)
    assert len(await written(log, row)) == 1
    answered = Answered(text="Hello world", trace_id="t")
    await out.write(answered)
    assert (await written(log, row))[2:] == [end, answered]


async def test_the_end_of_a_text_is_stored_after_a_while_though_nothing_follows() -> None:
    log, speaker = MemoryLog(), Speaker()
    row = await new_row(log)
    out = writer(log, row, every=0.001)
    await out.write(speaker.say("Hello"))
    end = TextEnded(message_id="m", role="narration")
    await out.write(end)
    await asyncio.wait_for(log.wait_for_event(row.run_id, 2), WAIT)
    assert (await written(log, row))[-1] == end


async def test_what_many_runs_hold_back_is_one_write_and_a_refused_run_stops_alone() -> None:
    counts: list[int] = []

    class CountingLog(MemoryLog):
        def append_all(self, batches: Sequence[EventBatch]) -> asyncio.Future[list[Exception | None]]:
            counts.append(len(batches))
            return super().append_all(batches)

    log = CountingLog()
    writers = RunWriters(log, StreamSettings(every=0.01, size=400))
    rows = [await new_row(log) for _ in range(5)]
    outs = [writers.open(row.run_id, row.epoch) for row in rows]
    speakers = [Speaker() for _ in rows]
    for out, speaker in zip(outs, speakers, strict=True):
        await out.write(speaker.say("Hel"))
    await log.advance_epoch(rows[0].run_id)
    for out, speaker in zip(outs, speakers, strict=True):
        await out.write(speaker.say("lo"))
    for row in rows[1:]:
        await asyncio.wait_for(log.wait_for_event(row.run_id, 2), WAIT)
        assert deltas(await written(log, row)) == [("m", 0, "Hel"), ("m", 3, "lo")]
    assert counts == [5]
    with pytest.raises(Fenced):
        await outs[0].close()
    for out in outs[1:]:
        await out.close()


async def test_messages_of_parallel_agents_keep_their_own_text_order_and_names() -> None:
    log = MemoryLog()
    row = await new_row(log)
    out = writer(log, row)
    argocd, jira = Speaker("one", "argocd", "call-1"), Speaker("two", "jira", "call-2")
    for text in ("a", "b", "c", "d"):
        await out.write(argocd.say(text))
        await out.write(jira.say(text.upper()))
    await out.write(TextEnded(message_id="one", role="delegated", agent="argocd", parent_call="call-1"))
    stored = await written(log, row)
    assert deltas(stored) == [("one", 0, "a"), ("two", 0, "A"), ("one", 1, "bcd"), ("two", 1, "BCD")]
    owners = {
        (event.message_id, event.agent, event.parent_call) for event in stored if isinstance(event, TextDelta)
    }
    assert owners == {("one", "argocd", "call-1"), ("two", "jira", "call-2")}


async def test_closing_stores_what_is_held() -> None:
    log, speaker = MemoryLog(), Speaker()
    row = await new_row(log)
    out = writer(log, row)
    await out.write(speaker.say("Hel"))
    await out.write(speaker.say("lo"))
    await out.close()
    await out.close()
    assert deltas(await written(log, row)) == [("m", 0, "Hel"), ("m", 3, "lo")]


async def test_closing_while_held_text_is_being_stored_loses_nothing() -> None:
    log, speaker = SlowLog(), Speaker()
    row = await new_row(log)
    out = writer(log, row, every=0.001)
    await out.write(speaker.say("Hel"))
    log.entered.clear()
    log.free.clear()
    await out.write(speaker.say("lo"))
    await asyncio.wait_for(log.entered.wait(), WAIT)  # the text is on its way to the log
    closing = asyncio.create_task(out.close())
    await asyncio.sleep(0)
    log.free.set()
    await asyncio.wait_for(closing, WAIT)
    assert deltas(await written(log, row)) == [("m", 0, "Hel"), ("m", 3, "lo")]


async def test_writes_keep_their_order_though_the_log_is_slow() -> None:
    log, speaker = SlowLog(), Speaker()
    row = await new_row(log)
    out = writer(log, row, every=0.001)
    log.free.clear()
    events: list[AnyEvent] = [
        speaker.say("a"),
        speaker.say("b"),
        Notice(code="info", text="one"),
        speaker.say("c"),
        speaker.say("d"),
    ]
    writing = [asyncio.create_task(out.write(event)) for event in events]
    await asyncio.wait_for(log.entered.wait(), WAIT)
    log.free.set()
    await asyncio.wait_for(asyncio.gather(*writing), WAIT)
    await out.close()
    stored = await written(log, row)
    assert [kind for kind, _ in groupby(event.kind for event in stored)] == [
        "text_delta",
        "notice",
        "text_delta",
    ]
    assert "".join(text for _, _, text in deltas(stored)) == "abcd"


async def test_a_refused_write_is_told_to_whoever_writes() -> None:
    log, speaker = MemoryLog(), Speaker()
    row = await new_row(log)
    out = writer(log, row)
    await out.write(speaker.say("Hel"))
    await log.advance_epoch(row.run_id)
    with pytest.raises(Fenced):
        await out.write(Notice(code="info", text="too late"))


async def test_a_write_refused_in_the_background_is_told_at_the_next_write() -> None:
    log, speaker = SlowLog(), Speaker()
    row = await new_row(log)
    out = writer(log, row, every=0.001)
    await out.write(speaker.say("Hel"))
    await log.advance_epoch(row.run_id)
    log.entered.clear()
    await out.write(speaker.say("lo"))
    await asyncio.wait_for(log.entered.wait(), WAIT)
    await asyncio.sleep(0)
    with pytest.raises(Fenced):
        await out.write(speaker.say(" again"))


SAID = st.tuples(st.integers(0, 2), st.text(min_size=1, max_size=8))
NOTED = st.tuples(st.none(), st.text(max_size=4))


@settings(max_examples=scale_examples(60))
@given(
    steps=st.lists(SAID | NOTED, max_size=30),
    size=st.integers(1, 24),
    every=st.sampled_from([0.0, 0.0001, NEVER]),
)
def test_joined_text_is_the_sum_of_what_was_written(
    steps: list[tuple[int | None, str]], size: int, every: float
) -> None:
    async def scenario() -> None:
        log = MemoryLog()
        row = await new_row(log)
        out = writer(log, row, every=every, size=size)
        speakers = [
            Speaker(str(number), f"agent-{number}", f"call-{number}" if number else None)
            for number in range(3)
        ]
        events: list[AnyEvent] = []
        for number, text in steps:
            events.append(Notice(code="info", text=text) if number is None else speakers[number].say(text))
            await out.write(events[-1])
            if isinstance(events[-1], Notice):
                stored = await written(log, row)
                assert fold(stored) == fold(events), "before another event everything said is stored"
            await asyncio.sleep(0)
        await out.close()
        stored = await written(log, row)
        assert fold(stored) == fold(events)
        assert len(stored) <= len(events)
        for speaker in speakers:
            pieces = [
                event
                for event in stored
                if isinstance(event, TextDelta) and event.message_id == speaker.message_id
            ]
            assert "".join(piece.text for piece in pieces) == speaker.said
            assert [piece.offset for piece in pieces] == [
                sum(len(p.text) for p in pieces[:n]) for n in range(len(pieces))
            ]

    asyncio.run(scenario())


# --- runs ---------------------------------------------------------------------------------------------------

Behaviour = Callable[[Turn], Awaitable[None]]


class Stage:
    """Runs over a log, driven by what the test wants each question to do."""

    def __init__(
        self,
        log: MemoryLog | None = None,
        *,
        grace: float = 2.0,
        busy: BusyPolicy = "enqueue",
        request_seconds: float = math.inf,
    ) -> None:
        self.log = log or MemoryLog()
        self.runs = Runs(
            self.log,
            self._drive,
            cancel_grace=grace,
            busy=busy,
            request_seconds=request_seconds,
            abandon=self._abandon,
        )
        self.driven: list[str] = []
        self.abandoned: list[str] = []
        self._claimed: list[PendingRequest] = []  # what the stretch that runs now goes on with
        self._parts: dict[str, Behaviour] = {}
        self._started: dict[str, asyncio.Event] = {}

    def on(self, text: str, behaviour: Behaviour) -> None:
        self._parts[text] = behaviour

    async def ask(
        self,
        text: str,
        *,
        context: str | None = "context",
        owner: str = "ann",
        task: str | None = None,
        id: str = "",
    ) -> RunRow:
        return await self._send(TextPart(text=text), context=context, owner=owner, task=task, id=id)

    async def tell(self, owner: str = "ann", id: str = "", **answers: str) -> RunRow:
        """Answers requests by their ids."""
        values = {request_id: {"answer": answer} for request_id, answer in answers.items()}
        return await self._send(
            DataPart(data={"resume": values}), context="context", owner=owner, task=None, id=id
        )

    async def _send(
        self, part: TextPart | DataPart, *, context: str | None, owner: str, task: str | None, id: str
    ) -> RunRow:
        message_id = id or str(uuid.uuid4())
        row, _ = await self.runs.accept(
            IncomingMessage(
                message_id, (part,), owner=owner, principal=owner, context_id=context, task_id=task
            )
        )
        return row

    async def started(self, text: str) -> None:
        await asyncio.wait_for(self._started.setdefault(text, asyncio.Event()).wait(), WAIT)

    async def events(self, row: RunRow) -> list[AnyEvent]:
        return [item.event for item in await self.runs.events(row.run_id)]

    async def end(self, row: RunRow) -> list[AnyEvent]:
        """All events of the run, when it has ended or paused."""
        await asyncio.wait_for(_last(self.runs, row.run_id), WAIT)
        return await self.events(row)

    async def end_of(self, row: RunRow, after: int) -> list[AnyEvent]:
        """The events above a number, when the turn has ended."""

        async def rest() -> list[AnyEvent]:
            return [item.event async for item in self.runs.follow(row.run_id, after)]

        return await asyncio.wait_for(rest(), WAIT)

    async def write(self, turn: Turn, *events: AnyEvent) -> None:
        await self.log.append(turn.row.run_id, turn.row.epoch, events)

    async def _abandon(self, row: RunRow) -> None:
        self.abandoned.append(row.run_id)

    async def _drive(self, turn: Turn) -> None:
        """A question by its text, a stretch that goes on with answers by theirs."""
        questions = [part.text for part in turn.parts if isinstance(part, TextPart)]
        self._claimed = [
            request for request in await self.log.requests(turn.row.run_id) if request.status == "claimed"
        ]
        answers = [
            answer["answer"] for request in self._claimed if isinstance(answer := request.answer, dict)
        ]
        text = " ".join(str(piece) for piece in (answers if turn.resumes else questions))
        self.driven.append(text)
        self._started.setdefault(text, asyncio.Event()).set()
        await self._parts.get(text, self.answer)(turn)

    async def answer(self, turn: Turn) -> None:
        await self.write(turn, Answered(text=f"answer of {turn.row.run_id}", trace_id=turn.trace_id))

    async def pause(self, turn: Turn) -> None:
        await self.pause_for("r")(turn)

    def pause_for(self, *request_ids: str, expires_at: datetime | None = None) -> Behaviour:
        async def behaviour(turn: Turn) -> None:
            await self.take_in(turn)
            stored_ids = {request.request_id for request in await self.log.requests(turn.row.run_id)}
            form = Form(response="Which?", fields=(InputField(field_name="answer"),), expires_at=expires_at)
            asks = [
                InputRequested(request_id=request_id, asked=form)
                for request_id in request_ids
                if request_id not in stored_ids
            ]
            await self.write(turn, *asks, Paused(text="Which?", requests=request_ids))

        return behaviour

    async def take_in(self, turn: Turn) -> None:
        for request in self._claimed:
            await self.write(
                turn,
                InputResolved(
                    request_id=request.request_id, resolution="answered", by=request.by, value=request.answer
                ),
            )

    async def resume(self, turn: Turn) -> None:
        assert turn.resumes
        await self.take_in(turn)
        await self.answer(turn)

    def answer_after(self, gate: asyncio.Event) -> Behaviour:
        async def behaviour(turn: Turn) -> None:
            await gate.wait()
            await self.answer(turn)

        return behaviour


async def _last(runs: Runs, run_id: str) -> StoredEvent:
    """The last event of the turn. What is behind it in the log belongs to the test, not to the reader."""
    row = [item async for item in runs.follow(run_id)]
    return row[-1]


def endings(events: Sequence[AnyEvent]) -> list[str]:
    return [event.kind for event in events if is_terminal(event)]


async def test_a_question_is_driven_once_and_ends_with_its_answer() -> None:
    stage = Stage()
    row = await stage.ask("one")
    events = await stage.end(row)
    assert [event.kind for event in events] == ["run_started", "answered"]
    assert stage.driven == ["one"]


async def test_twenty_equal_messages_at_once_are_one_run() -> None:
    stage = Stage()
    rows = await asyncio.gather(*(stage.ask("one", id="m") for _ in range(20)))
    assert len({row.run_id for row in rows}) == 1
    await stage.end(rows[0])
    assert (await stage.ask("one", id="m")).run_id == rows[0].run_id
    assert stage.driven == ["one"]


async def test_a_known_message_id_with_other_content_is_refused() -> None:
    stage = Stage()
    await stage.ask("one", id="m")
    with pytest.raises(MessageConflict):
        await stage.ask("two", id="m")


async def test_a_conversation_works_on_one_question_at_a_time_in_the_order_they_came() -> None:
    stage, gates = Stage(), {text: asyncio.Event() for text in ("one", "two", "three")}
    for text, gate in gates.items():
        stage.on(text, stage.answer_after(gate))
    rows = {text: await stage.ask(text) for text in gates}
    gates["three"].set()  # the last could answer at once, were it its turn
    for number, text in enumerate(gates, 1):
        await stage.started(text)
        assert stage.driven == list(gates)[:number]
        gates[text].set()
        assert endings(await stage.end(rows[text])) == ["answered"]


async def test_a_queued_question_says_how_many_are_before_it() -> None:
    stage, gate = Stage(), asyncio.Event()
    stage.on("one", stage.answer_after(gate))
    first, second, third = [await stage.ask(text) for text in ("one", "two", "three")]
    await stage.started("one")
    for row in (second, third):
        await asyncio.wait_for(stage.log.wait_for_event(row.run_id, 1), WAIT)
    gate.set()
    texts = {
        row.run_id: [event.text for event in await stage.end(row) if isinstance(event, Notice)]
        for row in (first, second, third)
    }
    assert texts[first.run_id] == []
    begun = "Work on this question has started."
    assert texts[second.run_id] == ["Queued: 1 question of this conversation before this one.", begun]
    assert texts[third.run_id] == ["Queued: 2 questions of this conversation before this one.", begun]


async def test_a_question_that_has_its_answer_is_before_nobody_while_it_puts_its_things_away() -> None:
    stage, gate = Stage(), asyncio.Event()

    async def linger(turn: Turn) -> None:
        await stage.answer(turn)
        await gate.wait()

    stage.on("one", linger)
    await stage.end(await stage.ask("one"))
    second, third = [await stage.ask(text) for text in ("two", "three")]
    await asyncio.wait_for(stage.log.wait_for_event(third.run_id, 1), WAIT)
    assert stage.driven == ["one"]
    gate.set()
    texts = [
        [event.text for event in await stage.end(row) if isinstance(event, Notice)] for row in (second, third)
    ]
    begun = "Work on this question has started."
    assert texts == [[], ["Queued: 1 question of this conversation before this one.", begun]]


class YieldingLog(MemoryLog):
    """A log that lets others go on between its reading and its reply, as a database does."""

    async def find_open_runs(self, owner: str, context_id: str) -> list[RunRow]:
        rows = await super().find_open_runs(owner, context_id)
        await asyncio.sleep(0)
        return rows


async def test_of_two_questions_at_once_the_second_finds_the_conversation_busy() -> None:
    stage, gate = Stage(YieldingLog(), busy="reject"), asyncio.Event()
    stage.on("one", stage.answer_after(gate))
    accepted, refused = await asyncio.gather(stage.ask("one"), stage.ask("two"), return_exceptions=True)
    assert isinstance(accepted, RunRow)
    assert isinstance(refused, WrongState)
    assert [row.run_id for row in await list_all_runs(stage.log, "ann")] == [accepted.run_id]
    gate.set()
    assert endings(await stage.end(accepted)) == ["answered"]
    assert stage.driven == ["one"]


async def test_other_conversations_and_other_owners_are_not_held_up() -> None:
    stage, gate = Stage(), asyncio.Event()
    stage.on("slow", stage.answer_after(gate))
    slow = await stage.ask("slow", context="shared")
    for row in (
        await stage.ask("a", context="other"),
        await stage.ask("b", context="shared", owner="bob"),
        await stage.ask("c", context=None),
    ):
        assert endings(await stage.end(row)) == ["answered"]
    gate.set()
    assert endings(await stage.end(slow)) == ["answered"]


async def test_a_question_behind_a_paused_run_waits_for_its_end() -> None:
    stage, gate = Stage(), asyncio.Event()

    async def pause_when_told(turn: Turn) -> None:
        await gate.wait()
        await stage.pause(turn)

    stage.on("one", pause_when_told)
    stage.on("blue", stage.resume)
    first, second = await stage.ask("one"), await stage.ask("two")
    gate.set()
    assert (await stage.end(first))[-1].kind == "paused"
    assert stage.driven == ["one"]
    answered = await stage.ask("blue", task=first.run_id)
    assert answered.run_id == first.run_id
    assert endings(await stage.end(second)) == ["answered"]
    assert endings(await stage.events(first)) == ["answered"]
    assert stage.driven == ["one", "blue", "two"]


async def test_a_message_to_a_conversation_that_waits_for_people_continues_the_run() -> None:
    stage = Stage()
    stage.on("one", stage.pause)
    stage.on("blue", stage.resume)
    first = await stage.ask("one")
    await stage.end(first)
    assert (await stage.ask("blue")).run_id == first.run_id
    await stage.started("blue")
    kinds = [item.event.kind async for item in stage.runs.follow(first.run_id, after=3)]
    assert kinds == ["message_received", "input_resolved", "answered"]


async def test_the_question_of_a_paused_run_sent_again_is_no_answer() -> None:
    stage = Stage()
    stage.on("one", stage.pause)
    first = await stage.ask("one", id="m")
    before = await stage.end(first)
    again = await stage.ask("one", id="m")
    assert again.run_id == first.run_id
    assert await stage.end(first) == before
    assert stage.driven == ["one"]


async def test_a_second_answer_while_the_first_is_taken_is_refused() -> None:
    stage, gate = Stage(), asyncio.Event()

    async def resume_when_told(turn: Turn) -> None:
        await gate.wait()
        await stage.resume(turn)

    stage.on("one", stage.pause)
    stage.on("blue", resume_when_told)
    first = await stage.ask("one")
    await stage.end(first)
    await stage.ask("blue", task=first.run_id)
    with pytest.raises(WrongState, match="is working"):
        await stage.ask("green", task=first.run_id)
    with pytest.raises(
        WrongState, match=r"^“Which\?” was already answered by ann at [-0-9]{10} [:0-9]{8} UTC\.$"
    ):
        await stage.tell(r="green")
    gate.set()
    await asyncio.wait_for(stage.log.wait_for_event(first.run_id, 4), WAIT)
    assert endings(await stage.events(first)) == ["answered"]
    assert stage.driven == ["one", "blue"]
    with pytest.raises(WrongState, match=r"^“Which\?” was already answered by ann"):
        await stage.tell(r="green")
    assert stage.driven == ["one", "blue"]


async def test_a_message_that_names_a_working_or_ended_task_is_refused() -> None:
    stage, gate = Stage(), asyncio.Event()
    stage.on("one", stage.answer_after(gate))
    row = await stage.ask("one")
    with pytest.raises(WrongState, match="is working"):
        await stage.ask("two", task=row.run_id)
    gate.set()
    await stage.end(row)
    with pytest.raises(WrongState, match="has ended"):
        await stage.ask("two", task=row.run_id)
    with pytest.raises(Refused, match="another context"):
        await stage.ask("two", task=row.run_id, context="elsewhere")


async def test_a_run_of_somebody_else_is_not_there() -> None:
    stage = Stage()
    row = await stage.ask("one")
    with pytest.raises(RunNotFound):
        await stage.runs.get(row.run_id, "bob")
    with pytest.raises(RunNotFound):
        await stage.ask("two", task=row.run_id, owner="bob")
    assert await list_all_runs(stage.log, "bob") == []
    assert [run.run_id for run in await list_all_runs(stage.log, "ann")] == [row.run_id]


# --- cancelling ---------------------------------------------------------------------------------------------


async def test_cancelling_stops_the_work_and_lets_the_next_question_in() -> None:
    stage, stopped = Stage(), asyncio.Event()

    async def work(turn: Turn) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    stage.on("one", work)
    first, second = await stage.ask("one"), await stage.ask("two")
    await stage.started("one")
    assert await stage.runs.cancel(first.run_id, by="ann")
    assert stopped.is_set()
    last = (await stage.end(first))[-1]
    assert isinstance(last, Cancelled)
    assert last.by == "ann"
    assert endings(await stage.end(second)) == ["answered"]


async def test_a_question_cancelled_in_the_queue_is_never_worked_on_and_holds_nobody_up() -> None:
    stage, gate = Stage(), asyncio.Event()
    stage.on("one", stage.answer_after(gate))
    rows = [await stage.ask(text) for text in ("one", "two", "three")]
    await stage.started("one")
    assert await stage.runs.cancel(rows[1].run_id, by="ann")
    assert endings(await stage.end(rows[1])) == ["cancelled"]
    gate.set()
    assert endings(await stage.end(rows[2])) == ["answered"]
    assert stage.driven == ["one", "three"]


async def test_a_paused_run_can_be_cancelled_and_its_request_is_withdrawn() -> None:
    stage = Stage()
    stage.on("one", stage.pause)
    row = await stage.ask("one")
    await stage.end(row)
    assert await stage.runs.cancel(row.run_id, by="ann")
    withdrawn, last = (await stage.events(row))[-2:]
    assert isinstance(withdrawn, InputResolved)
    assert (withdrawn.request_id, withdrawn.resolution, last.kind) == ("r", "withdrawn", "cancelled")
    assert endings(await stage.end(await stage.ask("two"))) == ["answered"]


async def test_a_cancel_keeps_what_was_said_and_closes_what_was_open() -> None:
    stage = Stage()

    async def work(turn: Turn) -> None:
        await stage.write(
            turn,
            ToolStarted(call_id="c", tool="search"),
            TextDelta(message_id="m", offset=0, text="Half an ans"),
        )
        await asyncio.Event().wait()

    stage.on("one", work)
    row = await stage.ask("one")
    await asyncio.wait_for(stage.log.wait_for_event(row.run_id, 2), WAIT)
    await stage.runs.cancel(row.run_id, by="ann")
    events = await stage.end(row)
    assert [event.kind for event in events] == [
        "run_started",
        "tool_started",
        "text_delta",
        "tool_finished",
        "cancelled",
    ]
    assert fold(events).partial == "Half an ans"
    assert not fold(events).running


async def test_a_cancel_after_the_answer_changes_nothing() -> None:
    stage = Stage()
    row = await stage.ask("one")
    before = await stage.end(row)
    assert not await stage.runs.cancel(row.run_id, by="ann")
    assert not await stage.runs.cancel("nothing", by="ann")
    assert await stage.events(row) == before


async def test_an_answer_stored_while_the_cancel_is_on_its_way_counts() -> None:
    stage = Stage()

    async def work(turn: Turn) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await stage.answer(turn)

    stage.on("one", work)
    row = await stage.ask("one")
    await stage.started("one")
    assert not await stage.runs.cancel(row.run_id, by="ann")
    assert endings(await stage.end(row)) == ["answered"]


async def test_an_answer_after_the_cancel_was_stored_is_refused() -> None:
    stage, go_on, outcome = Stage(grace=0.0), asyncio.Event(), asyncio.get_running_loop().create_future()

    async def stubborn(turn: Turn) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        await go_on.wait()
        try:
            await stage.answer(turn)
            outcome.set_result("stored")
        except Fenced:
            outcome.set_result("refused")
            raise

    stage.on("one", stubborn)
    row = await stage.ask("one")
    await stage.started("one")
    assert await stage.runs.cancel(row.run_id, by="ann")
    go_on.set()
    assert await asyncio.wait_for(outcome, WAIT) == "refused"
    assert endings(await stage.events(row)) == ["cancelled"]


async def test_work_that_ignores_its_cancel_cannot_write_while_the_end_is_being_stored() -> None:
    class HeldCancel(MemoryLog):
        """A commit of the cancel that takes as long as the test wants."""

        blocked, free = asyncio.Event(), asyncio.Event()

        async def append(self, run_id: str, epoch: int, events: Sequence[AnyEvent]) -> int:
            if any(isinstance(event, Cancelled) for event in events):
                self.blocked.set()
                await self.free.wait()
            return await super().append(run_id, epoch, events)

    log = HeldCancel()
    stage, outcome = Stage(log, grace=0.0), asyncio.get_running_loop().create_future()

    async def stubborn(turn: Turn) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        await log.blocked.wait()
        try:
            await stage.write(turn, Notice(code="info", text="still here"))
            outcome.set_result("stored")
        except Fenced:
            outcome.set_result("refused")

    stage.on("one", stubborn)
    row = await stage.ask("one")
    await stage.started("one")
    cancelling = asyncio.create_task(stage.runs.cancel(row.run_id, by="ann"))
    assert await asyncio.wait_for(outcome, WAIT) == "refused"
    log.free.set()
    assert await asyncio.wait_for(cancelling, WAIT)
    assert [event.kind for event in await stage.end(row)] == ["run_started", "cancelled"]


async def test_of_many_cancels_and_an_answer_at_once_one_is_stored() -> None:
    for delay in range(6):
        stage = Stage()

        async def work(turn: Turn, stage: Stage = stage, delay: int = delay) -> None:
            for _ in range(delay):
                await asyncio.sleep(0)
            await stage.answer(turn)

        stage.on("one", work)
        row = await stage.ask("one")
        cancelled = await asyncio.gather(
            *(stage.runs.cancel(row.run_id, by=str(number)) for number in range(5))
        )
        ending = endings(await stage.end(row))
        assert len(ending) == 1
        assert cancelled.count(True) == (1 if ending == ["cancelled"] else 0)


# --- what runs ask of people --------------------------------------------------------------------------------


async def test_an_answer_that_comes_while_the_run_works_is_taken_in_when_it_pauses() -> None:
    stage, gate = Stage(), asyncio.Event()

    async def work(turn: Turn) -> None:
        await stage.take_in(turn)
        await stage.write(turn, Notice(code="info", text="working"))
        await gate.wait()
        await stage.write(turn, Paused(text="Which?", requests=("b",)))

    stage.on("one", stage.pause_for("a", "b"))
    stage.on("blue", work)
    stage.on("red", stage.resume)
    row = await stage.ask("one")
    await stage.end(row)
    await stage.tell(a="blue")
    await asyncio.wait_for(stage.log.wait_for_event(row.run_id, 6), WAIT)
    await stage.tell(b="red")
    assert stage.driven == ["one", "blue"], "one stretch at a time"
    gate.set()
    kinds = [event.kind for event in await stage.end_of(row, 9)]
    assert kinds == ["input_resolved", "answered"]
    assert stage.driven == ["one", "blue", "red"]


class LaggingLog(MemoryLog):
    """A log from which the work of a run learns a moment later how things were."""

    async def requests(self, run_id: str) -> list[PendingRequest]:
        requests, task = await super().requests(run_id), asyncio.current_task()
        for _ in range(6 if task is not None and task.get_name().startswith("run:") else 0):
            await asyncio.sleep(0)
        return requests


@pytest.mark.parametrize("steps", range(24))
async def test_an_answer_at_the_moment_of_the_pause_is_never_left_lying(steps: int) -> None:
    stage = Stage(LaggingLog())
    stage.on("one", stage.pause_for("a", "b"))
    stage.on("blue", stage.pause_for("b"))
    stage.on("red", stage.resume)
    stage.on("blue red", stage.resume)
    row = await stage.ask("one")
    await stage.end(row)
    await stage.tell(a="blue")
    for _ in range(steps):
        await asyncio.sleep(0)
    await stage.tell(b="red")

    async def over() -> None:
        while not is_terminal((await stage.events(row))[-1]):
            await stage.log.wait_for_event(row.run_id, len(await stage.events(row)))

    await asyncio.wait_for(over(), WAIT)
    resolved = [
        (event.request_id, event.value)
        for event in await stage.events(row)
        if isinstance(event, InputResolved)
    ]
    assert resolved == [("a", {"answer": "blue"}), ("b", {"answer": "red"})]


async def test_of_many_answers_at_once_one_is_taken_and_the_others_are_told_whose() -> None:
    stage = Stage()
    stage.on("one", stage.pause)
    people = [f"colour {number}" for number in range(10)]
    for colour in people:
        stage.on(colour, stage.resume)
    row = await stage.ask("one")
    await stage.end(row)
    results = await asyncio.gather(*(stage.tell(r=colour) for colour in people), return_exceptions=True)
    winners = [colour for colour, result in zip(people, results, strict=True) if isinstance(result, RunRow)]
    refused = [str(result) for result in results if isinstance(result, WrongState)]
    assert (len(winners), len(refused)) == (1, 9)
    assert {text.partition(" at ")[0] for text in refused} == {"“Which?” was already answered by ann"}
    assert endings(await stage.end_of(row, 3)) == ["answered"]
    assert stage.driven == ["one", *winners]


async def test_an_answer_without_a_context_is_known_when_it_comes_again() -> None:
    stage = Stage()
    stage.on("one", stage.pause)
    stage.on("blue", stage.resume)
    row = await stage.ask("one")
    await stage.end(row)
    message = IncomingMessage(
        "m", (DataPart(data={"resume": {"r": {"answer": "blue"}}}),), owner="ann", principal="ann"
    )
    first, again = await stage.runs.accept(message), await stage.runs.accept(message)
    assert (first[0].run_id, first[1]) == (again[0].run_id, again[1]) == (row.run_id, 4)
    assert endings(await stage.end_of(row, 3)) == ["answered"]
    assert stage.driven == ["one", "blue"]


async def test_a_request_of_somebody_else_is_not_known() -> None:
    stage = Stage()
    stage.on("one", stage.pause)
    row = await stage.ask("one")
    before = await stage.end(row)
    with pytest.raises(WrongState, match="no request of this conversation is known"):
        await stage.tell(owner="bob", r="blue")
    assert await stage.events(row) == before
    assert [request.status for request in await stage.log.requests(row.run_id)] == ["pending"]


async def test_a_request_whose_time_has_come_is_told_once_and_decides_nothing() -> None:
    stage = Stage(request_seconds=NEVER)
    stage.on("one", stage.pause_for("r", expires_at=datetime(2000, 1, 1, tzinfo=UTC)))
    row = await stage.ask("one")
    await stage.end(row)
    await stage.runs.expire()
    events = await stage.events(row)
    resolved, paused = events[-2:]
    assert isinstance(resolved, InputResolved)
    assert (resolved.resolution, resolved.value, resolved.by) == ("expired", None, "")
    assert isinstance(paused, Paused)
    assert paused.requests == ()
    assert paused.text == (
        "Nobody answered in time: Which? Nothing was decided. "
        "Send a message to be asked again, or cancel the task."
    )
    await stage.runs.expire()
    assert await stage.events(row) == events
    assert stage.driven == ["one"]


@pytest.mark.parametrize("expired", [True, False], ids=["told", "not told yet"])
async def test_a_late_answer_is_no_answer_and_has_the_question_asked_again(expired: bool) -> None:
    stage = Stage(request_seconds=NEVER)
    stage.on("one", stage.pause_for("r", expires_at=datetime(2000, 1, 1, tzinfo=UTC)))
    stage.on("blue", stage.resume)
    row = await stage.ask("one")
    await stage.end(row)
    if expired:
        await stage.runs.expire()
    await stage.tell(r="blue")
    events = await stage.events(row)
    request, paused = events[-2:]
    assert [event.resolution for event in events if isinstance(event, InputResolved)] == ["expired"]
    assert isinstance(request, InputRequested)
    assert isinstance(paused, Paused)
    assert request.request_id != "r"
    assert paused.requests == (request.request_id,)
    assert request.asked.expires_at is not None
    assert request.asked.expires_at > datetime.now(UTC)
    assert stage.driven == ["one"]
    await stage.tell(r="blue")  # the old id is of no use
    assert stage.driven == ["one"]
    assert len([event for event in await stage.events(row) if isinstance(event, InputRequested)]) == 2
    before = len(await stage.events(row))
    await stage.tell(**{request.request_id: "blue"})
    assert endings(await stage.end_of(row, before)) == ["answered"]
    assert stage.driven == ["one", "blue"]


async def test_nothing_of_a_run_expires_between_a_claim_and_the_turn_that_takes_it_in() -> None:
    before = Stage()
    answered_form = Form(response="Which?", fields=(InputField(field_name="answer"),))
    overdue_form = answered_form.model_copy(update={"expires_at": datetime(2000, 1, 1, tzinfo=UTC)})

    async def ask_both(turn: Turn) -> None:
        await before.write(
            turn,
            InputRequested(request_id="a", asked=answered_form),
            InputRequested(request_id="b", asked=overdue_form),
            Paused(text="Which?", requests=("a", "b")),
        )

    before.on("one", ask_both)
    row = await before.ask("one")
    events = await before.end(row)
    message = AnswerMessage(row.run_id, "m-2", "digest", len(events))
    assert await before.log.claim_requests(message, {"a": {"answer": "blue"}}, "ann") == ["a"]

    after = Stage(before.log)
    after.on("blue", after.resume)
    await after.runs.expire()
    assert await after.events(row) == events
    assert await after.runs.recover() == 1
    assert endings(await after.end_of(row, len(events))) == ["answered"]


async def test_cancelling_a_run_that_waits_hands_the_cancellation_down() -> None:
    stage, gate = Stage(), asyncio.Event()
    stage.on("one", stage.pause)
    stage.on("two", stage.answer_after(gate))
    waits, works = await stage.ask("one"), await stage.ask("two", context="else")
    await stage.end(waits)
    await stage.started("two")
    for row in (waits, works):
        assert await stage.runs.cancel(row.run_id, by="ann")
        assert not await stage.runs.cancel(row.run_id, by="ann")
    assert stage.abandoned == [waits.run_id], "whoever works hands it down itself"


@pytest.mark.parametrize("held_text", ["And the weather?", None])
async def test_a_dropped_request_is_withdrawn_and_what_was_held_is_asked_anew(held_text: str | None) -> None:
    stage = Stage()
    stage.on("one", stage.pause_for("r1", "r2"))
    first = await stage.ask("one")
    await stage.end(first)
    if held_text:
        await stage.ask(held_text)
        last = (await stage.events(first))[-1]
        assert isinstance(last, Paused)
        assert (last.held, last.requests) == (held_text, ("r1", "r2"))
    dropped = await stage.ask("Drop them!", id="d")
    again = await stage.ask("Drop them!", id="d")
    assert endings(await stage.end_of(first, 4 + 2 * bool(held_text))) == ["cancelled"]
    assert [request.status for request in await stage.log.requests(first.run_id)] == [
        "withdrawn",
        "withdrawn",
    ]
    assert again.run_id == dropped.run_id
    if held_text:
        assert dropped.run_id != first.run_id
        assert endings(await stage.end(dropped)) == ["answered"]
    else:
        assert dropped.run_id == first.run_id
    assert stage.driven == ["one", held_text] if held_text else stage.driven == ["one"]


async def test_a_drop_that_names_its_task_finds_the_new_run_when_it_is_sent_again() -> None:
    stage = Stage()
    stage.on("one", stage.pause_for("r1", "r2"))
    first = await stage.ask("one")
    await stage.end(first)
    await stage.ask("And the weather?")
    drop = IncomingMessage("d", (TextPart(text="drop"),), owner="ann", principal="ann", task_id=first.run_id)
    dropped, before = await stage.runs.accept(drop)
    again, before_again = await stage.runs.accept(drop)
    assert dropped.run_id != first.run_id
    assert (again.run_id, before, before_again) == (dropped.run_id, 0, 0)
    assert endings(await stage.end(dropped)) == ["answered"]
    assert stage.driven == ["one", "And the weather?"]


# --- drivers that misbehave ---------------------------------------------------------------------------------


async def test_a_driver_that_ends_without_an_end_gives_a_failed_run() -> None:
    stage = Stage()

    async def silent(turn: Turn) -> None:
        await stage.write(turn, TextDelta(message_id="m", offset=0, text="Well"))

    stage.on("one", silent)
    first, second = await stage.ask("one"), await stage.ask("two")
    last = (await stage.end(first))[-1]
    assert isinstance(last, Failed)
    assert last.message
    assert last.partial == "Well"
    assert endings(await stage.end(second)) == ["answered"]


async def test_a_driver_that_raises_gives_a_failed_run_without_the_text_of_the_exception(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stage, secret = Stage(), uuid.uuid4().hex

    async def broken(turn: Turn) -> None:
        await stage.write(turn, ToolStarted(call_id="c", tool="search"))
        raise RuntimeError(f"password {secret}")

    stage.on("one", broken)
    with caplog.at_level(logging.DEBUG):
        first, second = await stage.ask("one"), await stage.ask("two")
        events = await stage.end(first)
        assert endings(await stage.end(second)) == ["answered"]
    assert endings(events) == ["failed"]
    assert not fold(events).running
    assert secret not in repr(events)
    assert secret not in caplog.text
    assert first.run_id in caplog.text, "operators can find the run"


@pytest.mark.parametrize("raises", [True, False])
async def test_an_answer_whose_work_breaks_gives_a_failed_run(raises: bool) -> None:
    stage = Stage()

    async def broken(turn: Turn) -> None:
        if raises:
            raise RuntimeError("broken")

    stage.on("one", stage.pause)
    stage.on("blue", broken)
    row = await stage.ask("one")
    await stage.end(row)
    await stage.ask("blue")
    await asyncio.wait_for(stage.log.wait_for_event(row.run_id, 3), WAIT)
    assert endings(await stage.events(row)) == ["failed"]
    assert not fold(await stage.events(row)).requests


@pytest.mark.parametrize("raises", [True, False])
async def test_work_that_ends_in_its_own_way_when_cancelled_is_cancelled(raises: bool) -> None:
    stage = Stage()

    async def work(turn: Turn) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if raises:
                raise RuntimeError("while cleaning up") from None

    stage.on("one", work)
    row = await stage.ask("one")
    await stage.started("one")
    assert await stage.runs.cancel(row.run_id, by="ann")
    assert endings(await stage.end(row)) == ["cancelled"]


async def test_a_driver_that_raises_after_its_end_changes_nothing() -> None:
    stage = Stage()

    async def work(turn: Turn) -> None:
        await stage.answer(turn)
        raise RuntimeError("late")

    stage.on("one", work)
    first, second = await stage.ask("one"), await stage.ask("two")
    assert endings(await stage.end(first)) == ["answered"]
    assert endings(await stage.end(second)) == ["answered"]
    assert endings(await stage.events(first)) == ["answered"]


# --- readers ------------------------------------------------------------------------------------------------


async def test_a_run_outlives_its_reader() -> None:
    stage, gate = Stage(), asyncio.Event()
    stage.on("one", stage.answer_after(gate))
    row = await stage.ask("one")
    reader = stage.runs.follow(row.run_id)
    assert (await anext(reader)).event.kind == "run_started"
    waiting = asyncio.ensure_future(anext(reader))
    await stage.started("one")
    waiting.cancel()
    await asyncio.wait({waiting})
    gate.set()
    assert endings(await stage.end(row)) == ["answered"]


async def test_a_reader_may_begin_anywhere_and_ends_with_the_turn() -> None:
    stage = Stage()

    async def talk(turn: Turn) -> None:
        speaker = Speaker()
        await stage.write(turn, *(speaker.say(str(number)) for number in range(400)))
        await stage.answer(turn)

    stage.on("one", talk)
    row = await stage.ask("one")
    await stage.end(row)
    for after in (0, 1, 300, 401):
        assert [item.seq async for item in stage.runs.follow(row.run_id, after)] == list(
            range(after + 1, 403)
        )


# --- shutting down ------------------------------------------------------------------------------------------


async def test_closing_ends_what_works_and_what_waits_and_no_reader_hangs() -> None:
    stage = Stage()

    async def work(turn: Turn) -> None:
        await stage.write(turn, TextDelta(message_id="m", offset=0, text="So far"))
        await asyncio.Event().wait()

    stage.on("one", work)
    stage.on("other", work)
    rows = [
        await stage.ask("one"),
        await stage.ask("two"),
        await stage.ask("three"),
        await stage.ask("other", context="else"),
    ]
    await stage.started("one")
    await stage.started("other")
    readers = [asyncio.create_task(_last(stage.runs, row.run_id)) for row in rows]
    await stage.runs.close("The server stops.")
    for item in await asyncio.wait_for(asyncio.gather(*readers), WAIT):
        assert isinstance(item.event, Failed)
        assert (item.event.message, item.event.code) == ("The server stops.", "shutdown")
    assert sorted(stage.driven) == ["one", "other"], "nothing new begins while the server stops"
    assert fold(await stage.events(rows[0])).partial == "So far"


async def test_closing_leaves_ended_and_paused_runs_as_they_are() -> None:
    stage = Stage()
    stage.on("pause", stage.pause)
    done, paused = await stage.ask("one"), await stage.ask("pause", context="else")
    before = [await stage.end(done), await stage.end(paused)]
    await stage.runs.close("The server stops.")
    assert [await stage.events(done), await stage.events(paused)] == before


# --- after a crash ------------------------------------------------------------------------------------------


async def test_a_message_that_died_with_the_process_is_taken_when_it_is_sent_again() -> None:
    before = Stage()
    before.on("one", before.pause)
    row = await before.ask("one")
    events = await before.end(row)
    parts = (TextPart(text="blue"),)
    await before.log.store_answer(
        AnswerMessage(row.run_id, "m-2", hash_parts(parts), len(events))
    )  # and nothing came of it

    after = Stage(before.log)
    after.on("blue", after.resume)
    await after.runs.recover()
    assert (await after.ask("blue", id="m-2")).run_id == row.run_id
    kinds = [event.kind for event in await after.end_of(row, len(events))]
    assert kinds == ["message_received", "input_resolved", "answered"]
    assert (await after.ask("blue", id="m-2")).run_id == row.run_id
    assert after.driven == ["blue"]


async def test_an_answer_that_was_claimed_before_the_process_died_is_taken_in_by_the_next_one() -> None:
    before = Stage()
    before.on("one", before.pause)
    row, idle = await before.ask("one"), await before.ask("two", context="else")
    events = await before.end(row)
    await before.end(idle)
    parts = (DataPart(data={"resume": {"r": {"answer": "blue"}}}),)
    message = AnswerMessage(row.run_id, "m-2", hash_parts(parts), len(events))
    assert await before.log.claim_requests(message, {"r": {"answer": "blue"}}, "ann") == ["r"]

    after = Stage(before.log)
    after.on("blue", after.resume)
    assert await after.runs.recover() == 1
    assert (await after.tell(r="blue", id="m-2")).run_id == row.run_id
    kinds = [event.kind for event in await after.end_of(row, len(events))]
    assert kinds == ["input_resolved", "answered"]
    assert (await after.tell(r="blue", id="m-2")).run_id == row.run_id
    assert after.driven == ["blue"]


async def test_the_next_process_leaves_a_run_alone_that_nobody_has_answered() -> None:
    before = Stage()
    before.on("one", before.pause)
    events = await before.end(row := await before.ask("one"))
    after = Stage(before.log)
    after.on("blue", after.resume)
    assert await after.runs.recover() == 0
    queued = await after.ask("two", context="else")
    await after.end(queued)
    assert (after.driven, await after.events(row)) == (["two"], events)
    await after.ask("blue", task=row.run_id)
    kinds = [event.kind for event in await after.end_of(row, len(events))]
    assert kinds == ["message_received", "input_resolved", "answered"]


async def test_the_next_process_goes_on_with_what_the_last_one_left_in_its_order() -> None:
    before, gate = Stage(), asyncio.Event()
    before.on("one", before.answer_after(gate))
    first, second = await before.ask("one"), await before.ask("two")
    other = await before.ask("three", context="else")
    await before.end(other)
    await before.started("one")

    after = Stage(before.log)
    turns: list[Turn] = []

    async def go_on(turn: Turn) -> None:
        turns.append(turn)
        await after.answer(turn)

    after.on("one", go_on)
    after.on("two", go_on)
    assert await after.runs.recover() == 2
    assert endings(await after.end(first)) == endings(await after.end(second)) == ["answered"]
    assert [(turn.row.run_id, turn.takes_over, turn.resumes) for turn in turns] == [
        (first.run_id, True, False),
        (second.run_id, True, False),
    ]
    assert all(turn.row.epoch > row.epoch for turn, row in zip(turns, (first, second), strict=True))
    with pytest.raises(Fenced):
        await before.log.append(first.run_id, first.epoch, [Notice(code="info", text="late")])
    gate.set()  # whoever was left behind writes nothing more
    await before.runs.hand_over(WAIT)
    assert endings(await after.events(first)) == ["answered"]
