"""The stream of a turn without a supervisor: how its text is cut, and what a thread shows when anything goes
wrong with any call.
"""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from slack_sdk.web.async_client import AsyncWebClient

from ai_platform_engineering.integrations.slack_bot.blocks import context
from ai_platform_engineering.integrations.slack_bot.delivery_retries import DeliveryFailed
from ai_platform_engineering.integrations.slack_bot.rate_limits import RATE_LIMITS, RateLimit, RateLimiter
from ai_platform_engineering.integrations.slack_bot.slack_stream import SlackStream
from ai_platform_engineering.integrations.slack_bot.stream_progress import MessageFooter, StreamProgress
from ai_platform_engineering.integrations.slack_bot.stream_text import StreamBuffer
from ai_platform_engineering.integrations.slack_bot.thread_messages import SlackThread, ThreadMessages
from ai_platform_engineering.integrations.slack_bot.thread_view import TaskCard, ThreadView
from ai_platform_engineering.integrations.slack_bot.web_api import SlackApi
from tests.support.examples import scale_examples
from tests.support.fakes.clock import ScaledClock
from tests.support.fakes.slack import FakeSlack, Fault
from tests.support.fakes.slack_rules import Rates
from tests.support.slack_workspace import FLUSH_INTERVAL, LIMITS, UNLIMITED_RATES, join_texts

# --- the text -----------------------------------------------------------------------------------------------

LIST = "\n\n- first\n\n  ```sh\n  run\n\n  more\n  ```\n- second\n\n"
WORDS = ["a", "word ", " ", "\n", "\n\n", "`x`", "<", ">", "\n> ", "&", "&lt;", "<!channel>", "é", "😀"]
words = st.lists(st.sampled_from(WORDS), max_size=20).map("".join)
blocks = st.tuples(
    st.sampled_from(
        [("```", ""), ("```", "py"), ("~~~~", ""), ("~~~", " <!here> x"), ("~~~", " of a kind" * 6)]
    ),
    words,
).map(lambda one: f"\n{one[0][0]}{one[0][1]}\n{one[1]}\n{one[0][0]}\n")
texts = st.lists(words | blocks | st.just(LIST), max_size=6).map("".join)
FENCE = " {0,3}(`{3,}|~{3,})"
ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}


def in_code(text: str, position: int) -> bool:
    """Whether the character is in a line of a code block, by a reading of the text of its own."""
    fence = ""
    for line in text[: text.rfind("\n", 0, position) + 1].split("\n")[:-1]:
        marks = re.match(r" {0,3}(~{3,}|`{3,}(?=[^`]*$))\s*(.*)", line)
        if marks and not fence:
            fence = marks[1]
        elif marks and marks[1].startswith(fence) and not marks[2].strip():
            fence = ""
    return bool(fence)


def escape_piece(text: str, start: int, end: int) -> str:
    """The piece as Slack is to get it: a `>` stays one only in the marks that open a line outside of code."""
    opens_line = start == 0 or text[start - 1] == "\n"
    escaped = ""
    for position, character in enumerate(text[start:end], start):
        if character != ">" or not opens_line or in_code(text, position):
            escaped += ENTITIES.get(character, character)
        else:
            escaped += character
        opens_line = character == "\n" or (opens_line and character in "> \t")
    return escaped


def written(buffer: StreamBuffer, views: list[str], rotates: list[bool]) -> list[tuple[int, int, str, str]]:
    """The messages that come of the views: the place of the text, what is sent, and the escaped text alone;
    where it rotates, a message ends after a view.
    """
    messages: list[tuple[int, int, str, str]] = []
    begun, text, escaped = 0, "", ""

    def end() -> None:
        nonlocal begun, text, escaped
        messages.append((begun, buffer.sent, text + buffer.closing_fence(), escaped))
        begun, text, escaped = buffer.sent, "", ""

    for number, (view, rotate) in enumerate(zip(views, rotates, strict=True)):
        buffer.complete = number == len(views) - 1
        assert buffer.set_text(view) is None
        while (piece := buffer.next_segment(len(text), opens=not text)) is not None:
            assert piece.start == buffer.sent
            assert piece.end > piece.start or (
                piece.full and text
            )  # it goes on, at the latest in a new message
            escaped += escape_piece(view, piece.start, piece.end)
            text, buffer.sent = text + piece.text, piece.end
            if piece.full:
                end()
        if rotate and text:
            end()
    return [*messages, (begun, buffer.sent, text, escaped)] if text else messages


def check(messages: list[tuple[int, int, str, str]], text: str, most: int) -> None:
    """Every character once, escaped, no message too long, nobody mentioned, no code block left open."""
    starts = [start for start, _, _, _ in messages]
    ends = [end for _, end, _, _ in messages]
    assert [0, *ends] == [*starts, len(text)]
    for start, end, sent, escaped in messages:
        assert len(sent) <= most
        assert "<" not in sent
        assert re.fullmatch(rf"({FENCE}[\w+#.-]*\n)?{re.escape(escaped)}(\n?{FENCE})?", sent), (
            text,
            start,
            end,
            sent,
        )
        if end < len(text):  # and what follows is not swallowed by a code block
            assert MarkdownIt().parse(f"{sent}\n\nend")[-2:][0].content == "end", (text, start, end, sent)


@given(text=texts, data=st.data())
@settings(max_examples=scale_examples(150), deadline=None)
def test_however_a_text_grows_and_is_cut_it_is_written_once_and_each_message_stands_for_itself(
    text: str, data: st.DataObject
) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    rotates = data.draw(st.lists(st.booleans(), min_size=len(cuts) + 1, max_size=len(cuts) + 1))
    check(written(StreamBuffer(0, 90, 110), [text[:cut] for cut in cuts] + [text], rotates), text, 120)


def test_a_piece_from_the_middle_of_a_line_keeps_the_quotation_below_it() -> None:
    buffer = StreamBuffer()
    buffer.set_text("As 5 ")
    first = buffer.next_segment(0, opens=True)
    assert first is not None
    buffer.sent = first.end
    buffer.set_text("As 5 > 4:\n> quoted > text")
    second = buffer.next_segment(len(first.text), opens=False)
    assert second is not None
    assert (first.text, second.text) == ("As 5 ", "&gt; 4:\n> quoted &gt; text")


# --- what the thread shows ----------------------------------------------------------------------------------

END = MessageFooter([context("The end.")], {"event_type": "caipe_turn", "event_payload": {}})
MARKS = {"✅": "complete", "❌": "error", "🔄": "in_progress", "⏳": "pending"}


class Leaping(ScaledClock):
    """Nobody waits: who sleeps moves the clock."""

    def __init__(self) -> None:
        super().__init__(0)

    async def sleep(self, seconds: float) -> None:
        self.advance(seconds)
        await asyncio.sleep(0)


class Crash(Exception):
    """The process dies."""


@dataclass
class Process:
    """A bot that draws one turn, and that may die with any of the next stores: before it is written, or
    after.
    """

    fake: FakeSlack
    thread_ts: str
    question_ts: str
    streaming: bool
    kept: StreamProgress = field(default_factory=StreamProgress)
    dies_in: int | None = None
    forgets: bool = False

    def __post_init__(self) -> None:
        client = AsyncWebClient(token="xoxb-test", base_url=self.fake.base_url, retry_handlers=[], timeout=30)
        self.slack = SlackApi(client, RateLimiter(self.fake.clock, UNLIMITED_RATES, FLUSH_INTERVAL))
        self.restart()

    def restart(self) -> None:
        self.dies_in = None
        place = SlackThread("T1", "C1", self.thread_ts, "U1", self.question_ts)
        self.stream = SlackStream(
            ThreadMessages(self.slack, place), self.kept, self._keep, self._is_known, streaming=self.streaming
        )

    async def _keep(self, drawn: StreamProgress) -> None:
        dies = self.dies_in == 0
        self.dies_in = None if self.dies_in is None else self.dies_in - 1
        self.kept = self.kept if dies and self.forgets else drawn
        if dies:
            raise Crash

    async def _is_known(self, ts: str) -> bool:
        return False

    async def show(self, view: ThreadView) -> None:
        """Shows it, over a crash if there is one."""
        try:
            self.stream.set_view(view)
            await self.stream.flush()
        except Crash:
            self.restart()
            await self.show(view)

    async def finish(self, view: ThreadView) -> None:
        try:
            await self.stream.finish(view, END)
        except Crash:
            self.restart()
            await self.finish(view)

    def mine(self) -> list[Any]:
        """The bot's messages, without the one that was there before, and stays."""
        first, *others = [one for one in self.fake.thread("C1", self.thread_ts) if one.bot_id == "B1"]
        assert first.text == "An earlier answer."
        return others


@contextlib.asynccontextmanager
async def drawing(streaming: bool = True) -> AsyncIterator[Process]:
    async with FakeSlack(clock=Leaping(), limits={**LIMITS, "chat.postMessage": 1_000_000}) as fake:
        thread_ts = said(fake, None, "An earlier question.")
        fake._keep(fake._new("C1", thread_ts, "posted", text="An earlier answer."))
        yield Process(fake, thread_ts, said(fake, thread_ts, "A question."), streaming)


def said(fake: FakeSlack, thread_ts: str | None, text: str) -> str:
    """A message of somebody that the bot has heard of."""
    ts = fake._ts()
    fake._hear(
        {"type": "message", "channel": "C1", "ts": ts, "thread_ts": thread_ts, "user": "U1", "text": text}
    )
    return ts


def last_states(messages: list[Any]) -> dict[str, str]:
    """How the thread shows each card in the end, by its title."""
    states: dict[str, str] = {}
    for message in messages:
        states |= {card["title"]: card["status"] for card in message.cards.values()}
        lines = "\n".join(
            block["text"]["text"] for block in message.blocks if block["type"] == "section"
        ).split("\n")
        states |= {line[2:]: MARKS[line[0]] for line in lines if line[:1] in MARKS}
    return states


def check_shown(process: Process, view: ThreadView) -> None:
    """The text once and in order, every card in its last state, the end once and at the end, nothing outside
    of the thread.
    """
    mine = process.mine()
    assert join_texts(mine) == view.text
    assert last_states(mine) == {card.title: card.status for card in view.cards}
    assert [one.metadata is not None for one in mine] == [False] * (len(mine) - 1) + [True]
    assert [
        block["elements"][0]["text"] for one in mine for block in one.all_blocks if block["type"] == "context"
    ] == ["The end."]
    assert {one.thread_ts for one in process.fake.messages.values() if one.bot_id} <= {process.thread_ts}


@dataclass(frozen=True)
class Step:
    """How a turn goes on: the text loses and gains, a card changes, time goes by, and things go wrong."""

    loses: int
    gains: int
    card: tuple[int, str] | None
    minutes: int
    closed: bool  # by Slack, before its time
    faults: tuple[tuple[str, Fault], ...]
    dies_in: int | None
    forgets: bool


METHODS = (
    "chat.startStream",
    "chat.appendStream",
    "chat.stopStream",
    "chat.postMessage",
    "chat.update",
    "chat.delete",
)
TROUBLES = [
    Fault(retry_after=7),
    Fault(status=500),
    Fault(drop="before"),
    Fault(drop="after"),
    Fault(error="fatal_error"),
]
troubles = st.sampled_from(TROUBLES)
too_long = st.tuples(
    st.sampled_from(["chat.startStream", "chat.appendStream", "chat.postMessage"]),
    st.just(Fault(error="msg_too_long")),
)
any_fault = st.tuples(st.sampled_from([*METHODS, "conversations.replies", "auth.test"]), troubles)
steps = st.builds(
    Step,
    loses=st.sampled_from([0, 0, 0, 30, 900, 9_000]),
    gains=st.integers(0, 12),
    card=st.none()
    | st.tuples(st.integers(0, 2), st.sampled_from(["pending", "in_progress", "complete", "error"])),
    minutes=st.sampled_from([0, 0, 1, 4, 6]),
    closed=st.booleans(),
    faults=st.lists(any_fault | any_fault | too_long, max_size=3).map(tuple),
    dies_in=st.none() | st.integers(0, 5),
    forgets=st.booleans(),
)


def trying(fault: tuple[str, Fault]) -> list[Step]:
    """A turn that makes every call there is, with the fault at each step: text is taken back, a stream grows
    old, and one is closed.
    """
    usual = Step(0, 2, (0, "in_progress"), 0, False, (fault,), None, False)
    return [
        usual,
        replace(usual, loses=30),
        replace(usual, card=(0, "error")),
        replace(usual, minutes=5),
        replace(usual, closed=True),
    ]


async def drawn(process: Process, turn: list[Step]) -> ThreadView:
    """A turn to its end; what it has come to."""
    view, number, too_long = ThreadView(), 0, set[str]()
    for step in turn:
        text = view.text[: max(0, len(view.text) - step.loses)]
        for _ in range(step.gains):
            number += 1
            text += f"Paragraph {number} " + "of <some> words & more " * 30 + "\n\n"
        cards = {card.card_id: card for card in view.cards}
        if step.card is not None:
            cards[f"c{step.card[0]}"] = TaskCard(f"c{step.card[0]}", f"Card {step.card[0]}", step.card[1])
        view = ThreadView(text, "The plan" if cards else "", tuple(cards.values()))
        process.fake.clock.advance(60 * step.minutes)
        if step.closed:
            for message in process.mine():
                message.state = "done" if message.state == "streaming" else message.state
        for method, fault in step.faults:
            if (
                fault.error != "msg_too_long" or method not in too_long
            ):  # Slack does not say so again and again of a few words
                process.fake.faults.add(method, fault)
            too_long |= {method} if fault.error == "msg_too_long" else set()
        process.dies_in, process.forgets = step.dies_in, step.forgets
        await process.show(view)
    closed = tuple(replace(card, status="complete") if card.is_open else card for card in view.cards)
    view = ThreadView(f"{view.text}That was all.", view.title, closed)
    await process.finish(view)
    return view


@pytest.mark.sample(6)
@pytest.mark.parametrize("streaming", [True, False], ids=["streams", "posts"])
@pytest.mark.parametrize("method", METHODS)
async def test_each_fault_of_each_call_costs_nothing_that_is_to_be_seen(method: str, streaming: bool) -> None:
    for fault in TROUBLES:
        async with drawing(streaming) as process:
            check_shown(process, await drawn(process, trying((method, fault))))


@pytest.mark.sample(1)
@pytest.mark.parametrize("streaming", [True, False], ids=["streams", "posts"])
@pytest.mark.parametrize("turns", [40, pytest.param(500, marks=pytest.mark.full)])
def test_whatever_goes_wrong_with_any_call_the_thread_shows_everything_once(
    turns: int, streaming: bool
) -> None:
    @given(turn=st.lists(steps, min_size=1, max_size=5))
    @settings(
        max_examples=turns, deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate]
    )
    def whatever(turn: list[Step]) -> None:
        note(f"{turn}")

        async def play() -> None:
            async with drawing(streaming) as process:
                check_shown(process, await drawn(process, turn))

        asyncio.run(play())

    whatever()


@pytest.mark.sample(1)
@pytest.mark.parametrize("streaming", [True, False], ids=["streams", "posts"])
async def test_whenever_a_process_dies_the_next_one_goes_on_and_says_nothing_twice(streaming: bool) -> None:
    begun, done = (
        ThreadView("One. ", "The plan", (TaskCard("c", "Card", "in_progress"),)),
        ThreadView("One. Two.", "The plan", (TaskCard("c", "Card", "error"),)),
    )
    for dies_in in range(6):
        for forgets in (False, True):
            async with drawing(streaming) as process:
                process.dies_in, process.forgets = dies_in, forgets
                await process.show(begun)
                process.fake.clock.advance(250)
                await process.finish(done)
                process.restart()  # it died before it could note that the turn is over
                await process.finish(done)
                check_shown(process, done)


async def test_a_process_that_dies_after_it_has_deleted_a_message_loses_nothing_of_it() -> None:
    async with drawing() as process:
        await process.show(ThreadView("One. "))
        process.fake.faults.add("chat.appendStream", Fault(drop="after"))
        process.dies_in, process.forgets = 0, True
        await process.show(ThreadView("One. Two. "))
        await process.finish(ThreadView("One. Two. Three."))
        check_shown(process, ThreadView("One. Two. Three."))


async def test_a_stream_that_slack_ended_before_its_end_does_not_look_unfinished() -> None:
    async with drawing() as process:
        await process.show(ThreadView("Everything."))
        process.mine()[0].state = "done"
        await process.finish(ThreadView("Everything."))
        check_shown(process, ThreadView("Everything."))
        assert [one.updates for one in process.mine()] == [1, 0]


async def test_no_message_is_opened_at_the_end_only_to_show_an_open_card_again() -> None:
    view = ThreadView("Everything.", "The plan", (TaskCard("c", "Card", "in_progress"),))
    async with drawing() as process:
        await process.show(view)
        await process.stream.finish(view, MessageFooter(session_status="suspended"))
        await process.finish(view)
        shown, footer = process.mine()
        assert (shown.text, list(footer.cards)) == ("Everything.", [])
        assert footer.metadata is not None


async def test_a_second_pause_opens_no_message_only_to_show_the_waiting_card_again() -> None:
    view = ThreadView("Everything.", "The plan", (TaskCard("c", "Card", "in_progress"),))
    pause = MessageFooter(session_status="suspended")
    async with drawing() as process:
        await process.show(view)
        await process.stream.finish(view, pause)
        await process.stream.finish(view, pause)  # as after an answer that did not fit
        assert [message.text for message in process.mine()] == ["Everything."]


async def test_a_text_that_changed_while_nobody_watched_replaces_what_stands_there() -> None:
    async with drawing() as process:
        pages = [f"{'Page ' * 1_600}{number}.\n\n" for number in range(3)]
        await process.show(ThreadView("".join(pages)))
        assert len(process.mine()) == 3
        process.restart()
        await process.finish(ThreadView(f"{pages[0]}{'Other ' * 1_000}"))
        check_shown(process, ThreadView(f"{pages[0]}{'Other ' * 1_000}"))


@pytest.mark.sample(1)
@pytest.mark.parametrize("streaming", [True, False], ids=["streams", "posts"])
async def test_while_slack_cannot_be_reached_a_turn_waits_however_long_it_takes(streaming: bool) -> None:
    async with drawing(streaming) as process:
        clock = process.fake.clock
        await process.show(ThreadView("One. "))
        await process.fake.go_away()
        waiting = asyncio.create_task(process.finish(ThreadView("One. Two.")))
        hour = clock.now() + 3600
        while clock.now() < hour:
            assert not waiting.done()
            await asyncio.sleep(0)
        await process.fake.come_back()
        await waiting
        check_shown(process, ThreadView("One. Two."))


async def test_what_slack_breaks_off_for_ever_ends_with_an_error_and_not_with_a_storm() -> None:
    async with drawing() as process:
        for method in METHODS:
            process.fake.faults.add(method, Fault(status=500, times=10_000))
        began = process.fake.clock.now()
        process.stream.set_view(ThreadView("One."))
        with pytest.raises(DeliveryFailed, match=r"Slack dropped chat.startStream \(HTTP 500\)"):
            await process.stream.flush()
        assert process.fake.clock.now() - began > 600
        assert len(process.fake.calls) < 200


async def test_a_message_that_slack_finds_too_long_with_more_text_ends_before_it() -> None:
    async with drawing(streaming=False) as process:
        await process.show(ThreadView("One.\n\n"))
        process.fake.faults.add("chat.update", Fault(error="msg_blocks_too_long"))
        await process.show(ThreadView("One.\n\nTwo. "))
        await process.finish(ThreadView("One.\n\nTwo. Three."))
        check_shown(process, ThreadView("One.\n\nTwo. Three."))
        assert len(process.mine()) == 2


async def test_blocks_that_slack_finds_too_long_below_a_stream_get_a_message_of_their_own() -> None:
    async with drawing() as process:
        process.fake.faults.add("chat.stopStream", Fault(error="msg_blocks_too_long"))
        await process.finish(ThreadView("Everything."))
        check_shown(process, ThreadView("Everything."))
        assert len(process.mine()) == 2


# --- how often ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", [*RATE_LIMITS])
async def test_the_budgets_stay_within_what_slack_allows(method: str) -> None:
    clock, slack = Leaping(), Rates({})
    limiter = RateLimiter(clock)
    for number in range(300):
        await limiter.acquire(method, "C1")
        assert slack.seconds_to_wait(method, "C1", clock.now()) == 0, number
        clock.advance(0.01 if number % 50 else 20)


async def test_when_slack_says_later_all_wait_and_streams_slow_down_for_a_minute() -> None:
    clock = Leaping()
    limiter = RateLimiter(clock)
    usual, began = limiter.flush_interval("chat.appendStream"), clock.now()
    limiter.back_off("chat.appendStream", "C1", 30)
    assert not await limiter.acquire("chat.appendStream", "C2", max_wait=29)
    assert await limiter.acquire("chat.startStream", max_wait=0)
    assert await limiter.acquire("chat.appendStream", "C2")
    assert clock.now() - began == pytest.approx(30)
    assert limiter.flush_interval("chat.appendStream") == 2 * usual
    clock.advance(60)
    assert limiter.flush_interval("chat.appendStream") == usual


async def test_who_wants_no_longer_wait_does_not_join_the_queue() -> None:
    clock = ScaledClock(0)
    limiter = RateLimiter(
        clock, {"chat.startStream": RateLimit(60, 1), "chat.appendStream": RateLimit(60, 1)}
    )
    assert await limiter.acquire("chat.startStream", max_wait=0)
    waiting = [asyncio.create_task(limiter.acquire("chat.startStream")) for _ in range(3)]
    await asyncio.sleep(0)
    assert not await limiter.acquire("chat.startStream", max_wait=3)  # three before it, a second each
    for _ in waiting:
        clock.advance(1)
        await asyncio.sleep(0.01)
    assert await asyncio.gather(*waiting) == [True, True, True]
