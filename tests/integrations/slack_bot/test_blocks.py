"""What the bot sends to Slack: for each kind of event by snapshot, and for whatever words within what Slack
accepts.

The snapshots are tests/fixtures/slack/<kind>.json. After a wanted change write them anew, and read the
difference:

SNAPSHOTS=write .venv/bin/pytest -n 0 tests/integrations/slack_bot/test_blocks.py
"""

import asyncio
import contextlib
import json
import os
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, get_args

import httpx
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from slack_sdk.web.async_client import AsyncWebClient

from ai_platform_engineering.a2a.client import A2AClient
from ai_platform_engineering.core.display_text import reveal_line
from ai_platform_engineering.core.events import (
    Answered,
    AnyEvent,
    Approval,
    Cancelled,
    Citation,
    Decision,
    Failed,
    FieldType,
    Form,
    InputField,
    InputRequested,
    InputResolved,
    MessageReceived,
    Notice,
    Paused,
    PlanStep,
    PlanUpdated,
    RunStarted,
    StepStatus,
    TextDelta,
    TextDiscarded,
    TextEnded,
    TextPart,
    ToolFinished,
    ToolOutcome,
    ToolProgress,
    ToolStarted,
    is_terminal,
)
from ai_platform_engineering.core.transcript import PendingInput, Transcript
from ai_platform_engineering.integrations.slack_bot import blocks, form_inputs, modals, thread_view
from ai_platform_engineering.integrations.slack_bot.approval_messages import fits_message, render_arguments
from ai_platform_engineering.integrations.slack_bot.bot_database import SqliteBotDatabase
from ai_platform_engineering.integrations.slack_bot.bot_store import BotStore
from ai_platform_engineering.integrations.slack_bot.input_requests import SlackInputRequests
from ai_platform_engineering.integrations.slack_bot.rate_limits import RateLimiter
from ai_platform_engineering.integrations.slack_bot.request_messages import build_request_message
from ai_platform_engineering.integrations.slack_bot.slack_stream import SlackStream
from ai_platform_engineering.integrations.slack_bot.stream_progress import MessageFooter, StreamProgress
from ai_platform_engineering.integrations.slack_bot.thread_messages import (
    STREAM_ENDED,
    SlackThread,
    ThreadMessages,
)
from ai_platform_engineering.integrations.slack_bot.turn_rows import TurnRow
from ai_platform_engineering.integrations.slack_bot.users import UserDirectory
from ai_platform_engineering.integrations.slack_bot.web_api import SlackApi
from tests.conftest import ROOT
from tests.support.fakes import slack_rules as rules
from tests.support.fakes.clock import ScaledClock
from tests.support.fakes.slack import FakeSlack
from tests.support.harness import PLAIN
from tests.support.slack_workspace import FLUSH_INTERVAL, LIMITS, UNLIMITED_RATES
from tests.support.strategies import AWKWARD, examples, json_object, json_value

SNAPSHOTS = ROOT / "tests/fixtures/slack"
NOW = datetime(2033, 5, 18, 3, 33, 20, tzinfo=UTC)
TURN, TASK, TRACE = "C1:1.000001", "task-1", "0af7651916cd43dd8448eb211c80319c"
Json = dict[str, Any]


# --- a thread, and a run that is drawn in it ----------------------------------------------------------------


@dataclass(slots=True)
class Drawing:
    """A turn in the fake Slack, one event after the other, each sent before the next one comes."""

    slack: FakeSlack
    messages: ThreadMessages
    requests: SlackInputRequests
    row: TurnRow
    stream: SlackStream
    seen: Transcript = field(default_factory=Transcript)

    async def take(self, event: AnyEvent) -> None:
        before, self.seen = self.seen, self.seen.apply(event)
        view = thread_view.build_view(self.seen)
        if isinstance(event, InputResolved):
            asked = next((one for one in before.requests if one.request_id == event.request_id), None)
            await self.requests.mark_resolved(self.row, self.messages, event, asked, NOW.timestamp())
        if isinstance(event, Paused):
            await self.stream.finish(view, MessageFooter(session_status="suspended"))
            await self.requests.post_requests(self.row, self.messages, self.seen, len(self.slack.calls))
        elif is_terminal(event):
            payload = {
                "event_type": "caipe_turn",
                "event_payload": {"task_id": TASK, "trace_id": self.seen.trace_id or ""},
            }
            await self.stream.finish(
                view, MessageFooter(blocks.ending_blocks(self.seen, TURN, TASK), payload)
            )
        else:
            self.stream.set_view(view)
            await self.stream.flush()


class Impatient(ScaledClock):
    """Stands still, and jumps over every wait: what is sent is the same each time."""

    def __init__(self) -> None:
        super().__init__(0)
        self.advance(NOW.timestamp() + 0.5 - self.now())

    async def sleep(self, seconds: float) -> None:
        self.advance(seconds)


@contextlib.asynccontextmanager
async def drawing(*, streaming: bool) -> AsyncIterator[Drawing]:
    clock = Impatient()
    async with (
        FakeSlack(clock, limits={**LIMITS, "chat.postMessage": 1_000_000}) as fake,
        httpx.AsyncClient(verify=PLAIN) as http,
    ):
        root = f"{int(NOW.timestamp())}.000000"
        fake.messages["C1", root] = rules.Message("C1", root, None, "U1", "user", text="How is the shop?")
        client = AsyncWebClient(token="xoxb-test", base_url=fake.base_url, retry_handlers=[])
        slack = SlackApi(client, RateLimiter(clock, UNLIMITED_RATES, FLUSH_INTERVAL))
        messages = ThreadMessages(slack, SlackThread("T1", "C1", root, "U1"))
        store = BotStore(SqliteBotDatabase(None), clock.now)
        row = TurnRow(
            TURN, "T1", "C1", root, "U1", "first@example.com", {"message_id": "m", "text": "?"}, TASK
        )
        stream = SlackStream(
            messages,
            StreamProgress(),
            _nothing,
            _unknown,
            stop_block=blocks.stop_button(TURN),
            streaming=streaming,
        )
        requests = SlackInputRequests(A2AClient("http://127.0.0.1:9/", http), store, UserDirectory(slack))
        yield Drawing(fake, messages, requests, row, stream)
        await store.close()


async def _nothing(_: StreamProgress) -> None:
    """Nothing outlives this test."""


async def _unknown(_: str) -> bool:
    return False


# --- each kind of event -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Scene:
    """What has happened, and the events to look at."""

    events: Sequence[AnyEvent]
    before: Sequence[AnyEvent] = ()
    modals: Mapping[str, Json | None] = field(default_factory=dict[str, Json | None])
    request: PendingInput | None = None


def said(text: str, message_id: str = "m1", offset: int = 0, **more: Any) -> TextDelta:
    return TextDelta(message_id=message_id, offset=offset, text=text, **more)


def planned(*states: StepStatus) -> PlanUpdated:
    titles = [
        ("Look at the deployments", "argocd"),
        ("Find the tickets", "jira"),
        ("Sum up", "supervisor"),
        ("Tell them", "slack"),
        ("x", ""),
    ]
    steps = [
        PlanStep(step_id=f"step-{n}", title=t, agent=a, status=s)
        for n, ((t, a), s) in enumerate(zip(titles, states, strict=False), 1)
    ]
    return PlanUpdated(title="Why is the shop <down> & slow?", steps=tuple(steps))


def began(tool: str, call_id: str, **more: Any) -> ToolStarted:
    return ToolStarted(tool=tool, call_id=call_id, **more)


def ended(tool: str, call_id: str, **more: Any) -> ToolFinished:
    return ToolFinished(tool=tool, call_id=call_id, **more)


KINDS: Sequence[FieldType] = get_args(FieldType)
FORM = Form(
    title="Create GitHub Repo",
    description="It is made in <the> organisation.",
    response="I need a few details.",
    expires_at=NOW,
    fields=tuple(
        InputField(
            field_name=f"{kind}_field",
            field_label=f"The {kind}",
            field_description=f"A {kind} & more.",
            field_type=kind,
            field_values=("red", "green <b>", "") if "select" in kind else None,
            default_value=default,
            required=kind != "email",
            placeholder="Choose well",
        )
        for kind, default in zip(
            KINDS,
            [
                "shop",
                "two\nlines",
                "red",
                ["red", ""],
                True,
                2.0,
                2.5,
                "2033-05-18",
                "https://a.example",
                "a@b.example",
            ],
            strict=True,
        )
    ),
)
MANY = Form(
    fields=(
        InputField(
            field_name="region",
            field_type="select",
            field_values=tuple(f"r{n}" for n in range(101)),
            value="r7",
        ),
    )
)
ONE = Form(response="Which name?", fields=(InputField(field_name="name"),))
APPROVAL = Approval(
    tool="create_repository",
    arguments={"name": "shop", "token": "abc", "text": "<!channel> ```", "private": True},
    reason="It changes GitHub.",
    expires_at=NOW,
)
READING = Approval(tool="delete_pod", arguments={}, allowed=("approve", "reject"))
CITED = (
    Citation(title="Run | book", url="https://docs.example/a?b=1&c=2"),
    Citation(title="", url="https://docs.example/x"),
    Citation(title="A note", document_id="doc-3"),
    Citation(title="No link", url="https://a.example/<!channel>|x"),
)
SUPERVISORS = {"request_id": "r1", "agent": "supervisor"}
IDS = {"turn": TURN, "request": "r1"}
ASKED = [InputRequested(**SUPERVISORS, asked=FORM)]
DELEGATION = {"tool": "argocd", "call_id": "c1", "delegates": True}

SCENES: Mapping[str, Mapping[str, Scene]] = {
    "run_started": {
        "nothing is drawn yet": Scene([RunStarted(message_id="m0", parts=(TextPart(text="Hello"),))])
    },
    "text_delta": {
        "the first words": Scene([said("Let me see. `a < b` & <!channel>\n> quoted")]),
        "more words": Scene([said(" It is up.", offset=11)], [said("Let me see.")]),
        "an echo is not shown": Scene([said("As argocd said.")], [began(**DELEGATION), ended(**DELEGATION)]),
        "an agent's own words are not shown": Scene(
            [said("Inside.", parent_call="c1")], [began(**DELEGATION)]
        ),
    },
    "text_ended": {
        "changes nothing": Scene([TextEnded(message_id="m1", role="narration")], [said("Let me see.")])
    },
    "text_discarded": {
        "is taken back": Scene([TextDiscarded(message_id="m1"), said("Again.", "m2")], [said("Let me see.")])
    },
    "tool_started": {
        "a delegation": Scene([began(**DELEGATION, arguments={"description": "Look at the\nshop"})]),
        "a tool of an agent": Scene(
            [began("list_apps", "c2", agent="argocd", parent_call="c1")], [began(**DELEGATION)]
        ),
        "a delegation in a step": Scene(
            [began(**DELEGATION, step_id="step-1")], [planned("in_progress", "pending")]
        ),
        "the knowledge base": Scene([began("search", "c3", knowledge=True)]),
    },
    "tool_progress": {
        "by itself": Scene(
            [ToolProgress(call_id="c3", tool="search", text="3 of 10")],
            [began("search", "c3", knowledge=True)],
        ),
        "inside an agent": Scene(
            [ToolProgress(call_id="c2", tool="sync", agent="argocd", parent_call="c1", text="half")],
            [began(**DELEGATION), began("sync", "c2", agent="argocd", parent_call="c1")],
        ),
    },
    "tool_finished": {
        "well": Scene(
            [ended("search", "c3", knowledge=True, result="2 documents")],
            [began("search", "c3", knowledge=True)],
        ),
        "with an error": Scene(
            [ended(**DELEGATION, outcome="error", error="It is <away>.")], [began(**DELEGATION)]
        ),
        "nobody knows": Scene([ended("deploy", "c4", outcome="unknown")], [began("deploy", "c4")]),
        "in a step": Scene(
            [ended(**DELEGATION, step_id="step-1", result="All synced.")],
            [
                planned("in_progress", "pending"),
                began(**DELEGATION, step_id="step-1"),
                began("get_app", "c2", agent="argocd", parent_call="c1"),
                ended("get_app", "c2", agent="argocd", parent_call="c1", outcome="error"),
            ],
        ),
    },
    "plan_updated": {
        "a new plan": Scene([planned("in_progress", "pending", "pending")]),
        "a step further": Scene(
            [planned("completed", "in_progress", "pending")], [planned("in_progress", "pending", "pending")]
        ),
        "every state": Scene([planned("completed", "failed", "skipped", "in_progress", "pending")]),
        "one of its delegations failed": Scene(
            [planned("failed", "pending")],
            [
                planned("in_progress", "pending"),
                began(**DELEGATION, step_id="step-1"),
                began(**{**DELEGATION, "call_id": "c2"}, step_id="step-1"),
                ended(**DELEGATION, step_id="step-1", outcome="error", error="It is locked."),
                ended(**{**DELEGATION, "call_id": "c2"}, step_id="step-1", result="All synced."),
            ],
        ),
        "without a title": Scene([planned("pending").model_copy(update={"title": " "})]),
    },
    "input_requested": {
        "a form": Scene(
            ASKED, request=PendingInput("r1", FORM), modals={"fill in": modals.form_modal(FORM, **IDS)}
        ),
        "more choices than a list has": Scene(
            [InputRequested(**SUPERVISORS, asked=MANY)],
            request=PendingInput("r1", MANY),
            modals={"fill in": modals.form_modal(MANY, **IDS)},
        ),
        "a form of one text": Scene(
            [InputRequested(**SUPERVISORS, asked=ONE)], request=PendingInput("r1", ONE)
        ),
        "an approval": Scene(
            [InputRequested(**SUPERVISORS, asked=APPROVAL)],
            request=PendingInput("r1", APPROVAL, "github"),
            modals={
                "edit": modals.edit_modal(APPROVAL, **IDS),
                "reject": modals.reject_modal("A decision: it will not be done.", **IDS),
            },
        ),
        "an approval without changes": Scene(
            [InputRequested(**SUPERVISORS, asked=READING)], request=PendingInput("r1", READING)
        ),
    },
    "input_resolved": {
        resolution: Scene(
            [InputResolved(request_id="r1", resolution=resolution, by=by)],
            [InputRequested(**SUPERVISORS, asked=asked), Paused(text="?", requests=("r1",))],
        )
        for resolution, by, asked in (
            ("answered", "slack:T1:U2", ONE),
            ("approved", "ops <!here>", APPROVAL),
            ("edited", "", READING),
            ("rejected", "slack:T1:U2", READING),
            ("expired", "", READING),
            ("withdrawn", "", READING),
        )
    },
    "message_received": {
        "an answer": Scene(
            [MessageReceived(message_id="m2", parts=(TextPart(text="cai"),))],
            [*ASKED, Paused(text="I need your input.", requests=("r1",))],
        )
    },
    "notice": {"a fallback": Scene([Notice(code="fallback", text="The model <x> took over.")])},
    "paused": {
        "in the middle": Scene(
            [*ASKED, Paused(text="I need your input.", requests=("r1",))],
            [planned("in_progress", "pending"), said("I need to know more.")],
        ),
        "before the first word": Scene(
            [InputRequested(**SUPERVISORS, asked=READING), Paused(text="?", requests=("r1",))]
        ),
        "a wrong answer": Scene(
            [Paused(text="The <name> is too long.", requests=("r1",), wrong={"r1": {"name": "too long"}})],
            [*ASKED, Paused(text="?", requests=("r1",))],
        ),
        "no answer": Scene(
            [Paused(text="Answer, or drop it.", requests=("r1",), held="What else?")],
            [*ASKED, Paused(text="?", requests=("r1",))],
        ),
    },
    "answered": {
        "as it was streamed": Scene(
            [Answered(text="It is up.", trace_id=TRACE, citations=CITED)],
            [planned("completed", "in_progress"), said("It is up.")],
            modals={"what was wrong": modals.reason_modal(task=TASK, owner="slack:T1:C1:1.000001")},
        ),
        "all at once": Scene([Answered(text="It is up.", trace_id=TRACE)]),
        "other than it was streamed": Scene(
            [Answered(text="It is up.", trace_id=TRACE)],
            [said("It is"), TextEnded(message_id="m1", role="answer")],
        ),
    },
    "failed": {
        "and can be tried again": Scene(
            [Failed(message="The model <x> did not answer. Try again.", trace_id=TRACE)],
            [planned("completed", "in_progress"), said("It is")],
        ),
        "for good": Scene(
            [Failed(message="That is not allowed.", trace_id=TRACE, retryable=False, partial="Half of it")]
        ),
    },
    "cancelled": {
        "in the middle": Scene(
            [Cancelled(trace_id=TRACE, by="me")], [planned("in_progress", "pending"), said("It is")]
        ),
        "before the first word": Scene([Cancelled(trace_id=TRACE)]),
    },
}


def _without_digests(drawn: Json) -> Json:
    """What was drawn, with the same digest in every mask: each process has a key of its own for them."""
    text = re.sub(r"characters, [0-9a-f]{8}\)", "characters, 00000000)", json.dumps(drawn))
    cleaned: Json = json.loads(text)
    return cleaned


@pytest.mark.parametrize("kind", SCENES)
async def test_each_kind_of_event_is_drawn_as_its_snapshot_says(kind: str) -> None:
    drawn = _without_digests({name: await _drawn(scene) for name, scene in SCENES[kind].items()})
    path = SNAPSHOTS / f"{kind}.json"
    if os.environ.get("SNAPSHOTS") == "write":
        path.write_text(json.dumps(drawn, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    assert drawn == json.loads(path.read_text(encoding="utf-8"))


async def _drawn(scene: Scene) -> Json:
    drawn: Json = {
        "streamed": await _calls(scene, streaming=True),
        "posted": await _calls(scene, streaming=False),
    }
    if scene.request is not None:
        drawn["message"] = list(build_request_message(scene.request, TURN))
    for view in scene.modals.values():
        rules.check_view(view)
    return {**drawn, **({"modals": dict(scene.modals)} if scene.modals else {})}


async def _calls(scene: Scene, *, streaming: bool) -> list[Json]:
    """What Slack is told of the events; what it was told before is left out."""
    async with drawing(streaming=streaming) as turn:
        for event in scene.before:
            await turn.take(event)
        known = len(turn.slack.calls)
        for event in scene.events:
            await turn.take(event)
        assert {call.answer for call in turn.slack.calls} <= {"ok"}
        return [{"method": call.method, **call.params} for call in turn.slack.calls[known:]]


def test_there_is_a_snapshot_for_each_kind_of_event_and_no_other() -> None:
    kinds = {one.model_fields["kind"].default for one in get_args(AnyEvent)}
    assert set(SCENES) == kinds
    assert {path.stem for path in SNAPSHOTS.glob("*.json")} == kinds
    for kind, scenes in SCENES.items():
        assert all(any(event.kind == kind for event in scene.events) for scene in scenes.values())


# --- whatever the words are ---------------------------------------------------------------------------------

MENTIONS = ("<!channel>", "<!here|here>", "<@U1>", "<#C1>", "<https://evil.example|the bank>")
ODD = [*AWKWARD, *MENTIONS, "```", "|", "&", "&amp;", "*", "_", "\u200b", "\u202e", "> ", "[x](y)"]
odd: st.SearchStrategy[str] = st.lists(st.sampled_from(ODD), max_size=4).map("".join)
long: st.SearchStrategy[str] = st.builds(
    str.__mul__, st.sampled_from(["x", "&", "<", "word ", "é\n", "😀", "<!channel> "]), st.integers(50, 4_000)
)
words = st.sampled_from(["", " ", "Look", "get_app"]) | odd | long
ids = st.sampled_from(["c1", "c2", "", "step-1", "notice-0", "x" * 300, "x" * 301])
agents = st.sampled_from(["supervisor", "argocd", ""]) | words
addresses = st.sampled_from(
    [
        "https://a.example/x?y=1&z=2",
        "javascript:alert(1)",
        "https://a.example/<!channel>|x",
        "https://a b",
        "",
    ]
)
steps = st.builds(
    PlanStep, step_id=ids, title=words, agent=agents, status=st.sampled_from(get_args(StepStatus))
)
fields = st.builds(
    InputField,
    field_name=st.sampled_from(["name", "", " ", "x" * 255, "x" * 256, "value"]) | words,
    field_label=st.none() | words,
    field_description=st.none() | words,
    field_type=st.sampled_from(KINDS),
    field_values=st.none()
    | st.lists(words, max_size=5).map(tuple)
    | st.integers(99, 130).map(lambda many: ("",) * many),
    default_value=json_value
    | words
    | st.sampled_from(["2033-05-18", "2033-W20-3", "not-a-date", "1e400", 1e300, 2.0, ["", ""]]),
    value=st.none() | json_value | words,
    required=st.booleans(),
    placeholder=st.none() | words,
)
forms = st.builds(
    Form,
    title=st.none() | words,
    description=st.none() | words,
    response=words,
    fields=st.lists(fields, max_size=6).map(tuple),
    expires_at=st.none() | st.datetimes(timezones=st.just(UTC)),
)
approvals = st.builds(
    Approval,
    tool=words,
    arguments=json_object | st.dictionaries(words, words),
    reason=words,
    allowed=st.lists(st.sampled_from(get_args(Decision))).map(tuple),
)
calls: Json = {"call_id": ids, "tool": words, "agent": agents, "parent_call": st.none() | ids}
happenings = st.one_of(
    st.builds(said, words, st.sampled_from(["m1", "m2"]), st.integers(0, 5)),
    st.builds(PlanUpdated, title=words, steps=st.lists(steps, max_size=6).map(tuple)),
    st.builds(
        ToolStarted,
        delegates=st.booleans(),
        knowledge=st.booleans(),
        arguments=st.builds(dict, description=words),
        step_id=ids,
        **calls,
    ),
    st.builds(ToolProgress, text=words, **calls),
    st.builds(
        ToolFinished,
        delegates=st.booleans(),
        outcome=st.sampled_from(get_args(ToolOutcome)),
        error=st.none() | words,
        result=words,
        **calls,
    ),
    st.builds(Notice, code=st.just("info"), text=words),
    st.builds(
        InputRequested, request_id=st.sampled_from(["r1", "r2"]), asked=forms | approvals, agent=agents
    ),
    st.builds(
        InputResolved,
        request_id=st.just("r1"),
        resolution=st.sampled_from(["approved", "withdrawn"]),
        by=words | st.just("slack:!here>"),
    ),
    st.builds(
        Paused, text=words, held=st.none() | words, wrong=st.sampled_from([{}, {"r1": {"name": "is wrong"}}])
    ),
)
citations = st.lists(
    st.builds(Citation, title=words, url=st.none() | addresses | long.map("https://a.example/".__add__)),
    max_size=30,
).map(tuple)
ends = st.one_of(
    st.builds(Answered, text=words, trace_id=words, citations=citations),
    st.builds(Failed, message=words, trace_id=words, retryable=st.booleans(), partial=st.none() | words),
    st.builds(Cancelled, trace_id=words, partial=st.none() | words),
)


def tried(count: int) -> settings:
    """Failing examples are not shrunk: with texts of this size that takes longer than a test may."""
    return settings(examples(count), phases=(Phase.explicit, Phase.reuse, Phase.generate))


@pytest.mark.parametrize("streaming", [True, False], ids=["streamed", "posted"])
@tried(12)
@given(events=st.lists(happenings, max_size=6), end=ends)
def test_whatever_happens_in_a_run_slack_takes_all_of_it_and_nobody_is_mentioned(
    streaming: bool, events: list[AnyEvent], end: AnyEvent
) -> None:
    asyncio.run(_taken([*events, end], streaming=streaming))


async def _taken(events: Sequence[AnyEvent], *, streaming: bool) -> None:
    async with drawing(streaming=streaming) as turn:
        for event in events:
            await turn.take(event)
    for call in turn.slack.calls:
        # What is taken back is ended first, whether or not it still streams.
        assert call.answer in ("ok", STREAM_ENDED), (call.method, call.result)
        assert not [text for text in _marked_up(call.params) if any(mention in text for mention in MENTIONS)]


WORST = {
    "nothing": "",
    "spaces": " \n\t ",
    "mentions": " ".join(MENTIONS),
    "marks": "a | b ``` *c* _d_ &amp; > e",
    "long": "x" * 5_000,
    "long and escaped": "&<>" * 1_500,
    "long in pictures": "😀" * 2_000,
}


@pytest.mark.sample(7)
@pytest.mark.parametrize("streaming", [True, False], ids=["streamed", "posted"])
@pytest.mark.parametrize("word", WORST.values(), ids=WORST.keys())
async def test_the_worst_words_in_every_place_are_taken_too(word: str, streaming: bool) -> None:
    call: Json = {"call_id": word, "tool": word, "agent": word}
    worst_form = Form(
        title=word, description=word, response=word, fields=(InputField(field_name=word, field_label=word),)
    )
    cited = (
        Citation(title=word, url=f"https://a.example/{word}"),
        Citation(title=word, url=word),
        Citation(title=word),
    ) * 10
    before: list[AnyEvent] = [
        said(word),
        PlanUpdated(
            title=word, steps=tuple(PlanStep(step_id=word, title=word, agent=word) for _ in range(3))
        ),
        ToolStarted(**call, delegates=True, arguments={"description": word}),
        ToolProgress(**call, text=word),
        ToolStarted(call_id=f"{word}2", tool=word, agent=word, parent_call=word),
        ToolFinished(**call, delegates=True, outcome="error", error=word),
        Notice(code="info", text=word),
        InputRequested(request_id="r1", agent=word, asked=worst_form),
        InputRequested(
            request_id="r2", agent=word, asked=Approval(tool=word, arguments={word: word}, reason=word)
        ),
        Paused(text=word, held=word, wrong={"r1": {word: word}}),
        InputResolved(request_id="r1", resolution="answered", by=word),
        InputResolved(request_id="r2", resolution="rejected", by=f"slack:{word}"),
    ]
    await _taken([*before, Answered(text=word, trace_id=word, citations=cited)], streaming=streaming)
    await _taken([Failed(message=word, trace_id=word, partial=word)], streaming=streaming)
    await _taken([Cancelled(trace_id=word, partial=word)], streaming=streaming)


def _marked_up(tree: Any) -> list[str]:
    """The texts in which Slack looks for mentions and links; those of a plain object it shows as they are,
    and ids nobody sees.
    """
    if isinstance(tree, dict):
        is_plain = tree.get("type") in ("plain_text", "text")
        unseen = set(tree) if is_plain else {"metadata", "id", "value"}
        return [text for name, child in tree.items() if name not in unseen for text in _marked_up(child)]
    if isinstance(tree, list):
        return [text for child in tree for text in _marked_up(child)]
    return [tree] if isinstance(tree, str) else []


@tried(60)
@given(form=forms)
def test_whatever_a_form_asks_slack_opens_it_and_each_field_is_read_from_its_own_block(form: Form) -> None:
    view = modals.form_modal(form, **IDS)
    shown = build_request_message(PendingInput("r1", form), TURN)[1]
    rules.check_blocks(shown)
    if view is None:
        assert "caipe_fill" not in json.dumps(shown)
        assert "cannot be shown here in full" in json.dumps(shown)
        return
    rules.check_view(view)
    inputs = [block["block_id"] for block in view["blocks"] if block["type"] == "input"]
    names = list(dict.fromkeys(field.field_name for field in form.fields))
    assert inputs == [form_inputs.block_id(name) for name in names]
    assert list(form_inputs.read_values(form, {"state": {"values": {}}})) == names
    wrong = modals.place_errors(view, {name: f"{number} is wrong" for number, name in enumerate(names)})
    assert wrong == {block: f"{number} is wrong" for number, block in enumerate(inputs)}


@tried(60)
@given(
    choices=st.lists(words, min_size=1, max_size=8), several=st.booleans(), data=st.data(), many=st.booleans()
)
def test_a_choice_is_read_back_as_it_was_offered_however_long_it_is(
    choices: list[str], several: bool, data: Any, many: bool
) -> None:
    offered = tuple(choices) + tuple(f"more {number}" for number in range(100 if many else 0))
    field = InputField(
        field_name="one", field_type="multiselect" if several else "select", field_values=offered
    )
    form = Form(fields=(field,))
    element = form_inputs.field_block(field, brief=False)["element"]
    shown = form_inputs.find_options(form, "one", "") if many else element["options"]
    rules.check_blocks(
        [{"type": "actions", "elements": [{"type": "static_select", "action_id": "a", "options": shown}]}]
    )
    option = data.draw(st.sampled_from(shown))
    given = {"selected_options": [option]} if several else {"selected_option": option}
    read = form_inputs.read_values(form, {"state": {"values": {"one": {form_inputs.VALUE_ACTION: given}}}})[
        "one"
    ]
    chosen = field.field_values[int(option["value"])] if field.field_values else None
    assert read == ([chosen] if several else chosen)
    assert option["text"]["text"].rstrip("…") in reveal_line(str(chosen)) or option["text"]["text"] == "-"


def _element(form: Form) -> Json:
    view = modals.form_modal(form, **IDS)
    assert view is not None
    element: Json = view["blocks"][-1]["element"]
    return element


@pytest.mark.parametrize(
    ("kind", "standing", "shown"),
    [
        ("integer", 2.0, {"initial_value": "2"}),
        ("integer", 2.5, {}),
        ("number", 1e-7, {"initial_value": "0.0000001"}),
        ("number", "many", {}),
        ("number", True, {}),
        ("date", "2033-05-18", {"initial_date": "2033-05-18"}),
        ("date", "2033-W20-3", {"initial_date": "2033-05-18"}),
        ("date", "not-a-date", {}),
        ("text", {"a": 1}, {}),
        ("url", "no address", {}),
        ("email", "a@b.example", {"initial_value": "a@b.example"}),
        (
            "multiselect",
            ["b", "b", "c"],
            {"initial_options": [{"text": {"type": "plain_text", "text": "b"}, "value": "1"}]},
        ),
    ],
)
def test_a_field_begins_with_its_value_where_slack_would_take_it(
    kind: FieldType, standing: Any, shown: Json
) -> None:
    element = _element(
        Form(fields=(InputField(field_name="one", field_type=kind, field_values=("a", "b"), value=standing),))
    )
    assert {name: value for name, value in element.items() if name.startswith("initial")} == shown


def test_a_form_may_have_as_many_fields_as_a_modal_has_room_for() -> None:
    def form(count: int, **more: Any) -> Form:
        return Form(
            response="Please.",
            fields=tuple(InputField(field_name=f"f{number}", **more) for number in range(count)),
        )

    full = modals.form_modal(form(form_inputs.MAX_FIELDS), **IDS)
    assert full is not None
    assert len(rules.check_view(full)["blocks"]) == form_inputs.MAX_FIELDS + 1
    assert modals.form_modal(form(form_inputs.MAX_FIELDS + 1), **IDS) is None
    _, blocks = build_request_message(PendingInput("r1", form(300)), TURN)
    assert "caipe_fill" not in json.dumps(rules.check_blocks(blocks))
    assert "cannot be shown here in full" in json.dumps(blocks)


@pytest.mark.parametrize("word", WORST.values(), ids=WORST.keys())
def test_what_is_wrong_with_an_answer_is_shown_where_there_is_no_field_for_it(word: str) -> None:
    view = modals.form_modal(Form(title=word), **IDS)
    assert view is not None
    assert modals.place_errors(rules.check_view(view), {"name": word}) == {}
    rules.check_view(modals.notice_modal(word))
    filled = modals.form_modal(
        Form(fields=(InputField(field_name="one"), InputField(field_name="two"))), **IDS
    )
    assert filled is not None
    assert modals.place_errors(filled, {"three": "is unknown.", "one": "is wrong."}) == {
        "one": "is unknown. is wrong."
    }


def _form_of(field: InputField) -> Form:
    """A form with as many fields of one kind as it may have."""
    names = [f"f{number}" for number in range(form_inputs.MAX_FIELDS)]
    return Form(fields=tuple(field.model_copy(update={"field_name": name}) for name in names))


@pytest.mark.parametrize(
    "more",
    [
        {"field_label": "y" * 2_001},
        {"field_description": "z" * 2_001},
        {"field_type": "select", "field_values": ("short", "x" * 76)},
        {"value": "x" * 3_001},
        {"value": "ls \u202e"},
    ],
    ids=["label", "explanation", "choice", "value", "value that cannot be seen"],
)
def test_a_form_that_slack_would_cut_cannot_be_filled_in_there(more: Json) -> None:
    form = Form(fields=(InputField(field_name="one", **more),))
    assert modals.form_modal(form, **IDS) is None
    _, blocks = build_request_message(PendingInput("r1", form), TURN)
    offered = [element["action_id"] for _, element in rules.elements(rules.check_blocks(blocks))]
    assert offered == ["caipe_decline"]
    assert "cannot be shown here in full" in json.dumps(blocks)


def test_a_form_that_would_be_too_large_for_slack_loses_no_choice() -> None:
    options = tuple(f"{number} {'x' * 60}" for number in range(100))
    assert modals.form_modal(_form_of(InputField(field_name="", field_label="y" * 3_000)), **IDS) is None
    form = _form_of(InputField(field_name="", field_type="select", field_values=options))
    view = modals.form_modal(form, **IDS)
    assert view is not None
    rules.check_view(view)
    assert {block["element"]["type"] for block in view["blocks"]} == {"external_select"}
    assert [option["value"] for option in form_inputs.find_options(form, "f7", "9 X")] == [
        "9",
        "19",
        "29",
        "39",
        "49",
        "59",
        "69",
        "79",
        "89",
        "99",
    ]


@tried(60)
@given(asked=approvals, agent=agents)
def test_whatever_is_to_be_approved_slack_shows_it(asked: Approval, agent: str) -> None:
    headline, blocks = build_request_message(PendingInput("r1", asked, agent), TURN)
    assert 0 < len(headline) <= 300
    rules.check_blocks(blocks)
    offered = [element["action_id"] for _, element in rules.elements(blocks)]
    view = modals.edit_modal(asked, **IDS)
    request = PendingInput("r1", asked, agent)
    expected: set[str] = {"caipe_reject_it"} if "reject" in asked.allowed else set()
    if fits_message(request, asked):
        code = [part["text"] for part in rules.parts(blocks) if part.get("type") == "text"]
        arguments = render_arguments(asked) if asked.arguments else ""
        assert arguments.replace("\n", "") in "".join(code).replace("\n", "")
        if "approve" in asked.allowed:
            expected |= {"caipe_approve", "caipe_always"}
        if "edit" in asked.allowed and view is not None:
            expected |= {"caipe_edit"}
    else:
        assert "It cannot be approved here: " in json.dumps(blocks)
    assert set(offered) == expected
    rules.check_view(modals.reject_modal(asked.describe(), **IDS))
    assert view is not None or len(render_arguments(asked)) > 3_000
    if view is not None:
        rules.check_view(view)


async def test_an_answer_that_fills_its_message_has_its_sources_below_in_one_of_their_own() -> None:
    text = "word " * 2_190
    cited = tuple(
        Citation(title=f"{number} {'t' * 200}", url=f"https://a.example/{'p' * 200}") for number in range(30)
    )
    async with drawing(streaming=False) as turn:
        await turn.take(planned("completed", "in_progress"))
        await turn.take(Notice(code="info", text="n" * 3_000))
        await turn.take(Answered(text=text.strip(), trace_id=TRACE, citations=cited))
        shown = [one for one in turn.slack.thread("C1", turn.row.thread_ts) if one.bot_id]
        assert {call.answer for call in turn.slack.calls} == {"ok"}
    assert [one.metadata is not None for one in shown] == [False, True]
    assert shown[0].shown == text.strip()
    assert "*Sources*" in str(shown[1].blocks)
    assert "more" in shown[1].blocks[0]["text"]["text"].splitlines()[-1]
    assert "caipe_feedback" in str(shown[1].blocks)
