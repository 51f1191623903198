"""Status texts in tokens, growing, repeated: what belongs together is found by content, not by ids."""

import itertools
from collections.abc import Sequence

import pytest
from a2a.types import StreamResponse
from hypothesis import given
from hypothesis import strategies as st

from ai_platform_engineering.a2a.third_party_parts import remove_whitespace
from ai_platform_engineering.a2a.third_party_reader import ThirdPartyReader
from ai_platform_engineering.core.events import AnyEvent, TextDelta, TextDiscarded
from ai_platform_engineering.core.transcript import Transcript, fold
from tests.a2a.test_third_party_reader import DONE, chunk, message, read, says, seen, spans, task, told
from tests.support.fakes.script import tokens
from tests.support.strategies import awkward_text, examples

NARRATION = "Let me look."
ANSWER = "Version 2.9 runs.\n\nIt is fine."
NARRATION_TOKENS = ["Let", " me", " look", "."]
ANSWER_TOKENS = ["Version", " 2", ".", "9", " runs", ".\n\n", "It", " is", " fine", "."]
BOTH = [(NARRATION, "narration"), (ANSWER, "answer")]


def say_each(pieces: Sequence[str], *, same_id: bool = False) -> list[StreamResponse]:
    """A status message for each piece, with an id of its own or all with the same."""
    return [says(piece, "m" if same_id else f"m-{number}-{piece}") for number, piece in enumerate(pieces)]


def grow(text: str, pieces: Sequence[str]) -> list[str]:
    """The text so far, after each piece."""
    lengths = itertools.accumulate(len(piece) for piece in pieces)
    return [text[:length] for length in lengths]


def deltas(events: list[AnyEvent]) -> list[str]:
    return [event.text for event in events if isinstance(event, TextDelta)]


@pytest.mark.parametrize("same_id", [True, False])
def test_tokens_are_one_message_and_arrive_one_by_one(same_id: bool) -> None:
    events = read(*say_each(ANSWER_TOKENS, same_id=same_id), chunk("a", f"{ANSWER}\n"), DONE)
    assert deltas(events) == ANSWER_TOKENS
    assert spans(fold(events)) == [(ANSWER, "answer")]


@pytest.mark.parametrize("same_id", [True, False])
def test_a_text_that_grows_is_one_message(same_id: bool) -> None:
    frames = say_each(grow(ANSWER, ANSWER_TOKENS), same_id=same_id)
    events = read(*frames, says(ANSWER, "whole"), chunk("a", ANSWER), DONE)
    assert deltas(events) == ANSWER_TOKENS
    assert spans(fold(events)) == [(ANSWER, "answer")]


def test_the_whole_text_after_its_tokens_is_not_shown_again() -> None:
    events = read(*say_each(ANSWER_TOKENS), says(ANSWER, "whole"), chunk("a", ANSWER), DONE)
    assert deltas(events) == ANSWER_TOKENS


def test_tokens_without_the_whole_text_are_the_answer() -> None:
    transcript = seen(*say_each(ANSWER_TOKENS), DONE)
    assert (spans(transcript), transcript.answer) == ([(ANSWER, "answer")], ANSWER)


def test_a_tool_that_nobody_tells_of_leaves_two_texts() -> None:
    """Nothing is sent between the narration and the answer: only the missing space tells them apart."""
    frames = say_each([*NARRATION_TOKENS, *ANSWER_TOKENS])
    assert spans(seen(*frames, chunk("a", ANSWER), DONE)) == BOTH


@pytest.mark.parametrize("narration", ["Checking the cluster", "Let me look: ", "Reading logs\n"])
def test_a_text_that_seemed_to_go_on_is_split_when_the_answer_is_known(narration: str) -> None:
    pieces = ["I", "'ll do it. ", narration, *ANSWER_TOKENS]
    events = read(*say_each(pieces), chunk("a", ANSWER), DONE)
    assert spans(fold(events)) == [(f"I'll do it. {narration}", "narration"), (ANSWER, "answer")]
    assert len([event for event in events if isinstance(event, TextDiscarded)]) == 1


def test_a_short_answer_after_narration_in_tokens() -> None:
    transcript = seen(*say_each([*NARRATION_TOKENS, "3", " pods"]), chunk("a", "3 pods"), DONE)
    assert spans(transcript) == [(NARRATION, "narration"), ("3 pods", "answer")]


def test_a_text_that_seemed_to_end_is_united_when_the_answer_is_known() -> None:
    text = "Use os.Path and Kube.CTL now."
    pieces = ["Use", " os", ".", "Path", " and", " Kube", ".", "CTL", " now", "."]
    events = read(*say_each(pieces), chunk("a", text), DONE)
    assert spans(fold(events)) == [(text, "answer")]


def test_a_token_that_looked_like_a_longer_text_is_put_right() -> None:
    transcript = seen(*say_each(["1", "10", " apps"]), chunk("a", "110 apps"), DONE)
    assert spans(transcript) == [("110 apps", "answer")]


def test_whitespace_between_tokens_is_kept() -> None:
    pieces = ["Two", " ", "pods", "\n\n", "- one", "\n", "- two"]
    assert spans(seen(*say_each(pieces), DONE)) == [("".join(pieces), "answer")]


@pytest.mark.parametrize(
    "texts",
    [
        ["Let me look.", "Found three apps."],
        ["Searching", "Reading logs", "Comparing"],
        ["🔎 Searching", "📖 Reading"],
        ["Let me look.\n", "Found three.\n"],
        ["Looking it up...", "Still at it...", "Nearly there..."],
        ["正在查询。", "找到三个。"],
    ],
)
def test_lines_of_progress_are_messages_of_their_own(texts: list[str]) -> None:
    transcript = seen(*say_each(texts), chunk("a", ANSWER), DONE)
    assert spans(transcript) == [*((text, "narration") for text in texts), (ANSWER, "answer")]


def test_a_failure_that_was_said_before_is_told_once() -> None:
    events = read(
        *say_each(["Let", " me"]), says("The quota is used up.", "e"), told("failed", "The quota is used up.")
    )
    assert spans(fold(events)) == [("Let me", "narration")]
    assert events[-1].message == "The quota is used up."


def test_a_question_that_was_said_before_is_asked_once() -> None:
    events = read(says(NARRATION, "1"), says("Which cluster?", "2"), told("input-required", "Which cluster?"))
    assert spans(fold(events)) == [(NARRATION, "narration")]
    assert events[-1].text == "Which cluster?"


# --- polled tasks -------------------------------------------------------------------------------------------


def history(pieces: Sequence[str]) -> list:
    """The agent's messages of a stored task, with the ids that the stream had."""
    return [message(piece, message_id=f"m-{number}-{piece}") for number, piece in enumerate(pieces)]


def test_the_history_of_a_polled_task_fills_what_the_stream_lost() -> None:
    frames = say_each(ANSWER_TOKENS[:3])
    transcript = seen(*frames, task("completed", history=tuple(history(ANSWER_TOKENS))))
    assert spans(transcript) == [(ANSWER, "answer")]


def test_the_answer_of_a_polled_task_is_the_last_text_that_tells_of_no_tool() -> None:
    """Older servers store an answer nowhere else, and give their messages no ids."""
    told = (NARRATION, ANSWER, "✅ Tool sync completed", "🔧 Calling tool: sync\n✅ Tool sync completed")
    stored = tuple(message(text, message_id="") for text in told)
    assert seen(task("completed", history=stored)).answer == ANSWER


def test_after_a_gap_no_fragments_are_shown() -> None:
    reader = ThirdPartyReader("argocd")
    for frame in say_each(ANSWER_TOKENS[:3]):
        reader.read(frame)
    stored = history(ANSWER_TOKENS)
    assert reader.read(task("working", said=" is", history=tuple(stored[6:7]))) == []
    assert reader.read(task("working", said=".", history=tuple(stored[6:9]))) == []
    (rest,) = reader.read(chunk("a", ANSWER))
    assert rest.text == ANSWER.removeprefix("".join(ANSWER_TOKENS[:3]))


def test_a_task_that_is_polled_only_shows_no_fragments() -> None:
    reader = ThirdPartyReader("argocd")
    stored = history(ANSWER_TOKENS)
    assert reader.read(task("working", said=" fine", history=tuple(stored[5:7]))) == []
    (whole,) = reader.read(chunk("a", ANSWER))
    assert whole.text == ANSWER


def test_a_polled_status_without_a_history_is_no_fragment_either() -> None:
    reader = ThirdPartyReader("argocd")
    for frame in say_each(ANSWER_TOKENS[:3]):
        reader.read(frame)
    assert reader.read(task("working", said=" fine")) == []


# --- whatever the text and its pieces are -------------------------------------------------------------------

words = st.sampled_from(
    ["It", "runs", "Argo", "CD", "2.9", "os.Path", "3", "pods", "ha", "e.g.", "`kubectl`", "**bold**", "版本"]
)
sentences = st.lists(words, min_size=1, max_size=8, unique=True).map(lambda chosen: " ".join(chosen) + ".")
odd_texts = awkward_text.map(lambda text: text.encode("utf-8", "replace").decode().strip()).filter(
    lambda text: text and not set(text) & set("🔧✅❌\x00")
)
texts = st.lists(sentences, min_size=1, max_size=3).map("\n\n".join) | odd_texts


@st.composite
def cut_texts(draw: st.DrawFn) -> list[str]:
    """A text in pieces; joined they are the text."""
    text = draw(texts)
    cuts = sorted(draw(st.sets(st.integers(1, max(1, len(text) - 1)), max_size=12)))
    return [piece for piece in (text[a:b] for a, b in itertools.pairwise([0, *cuts, len(text)])) if piece]


def without_whitespace(transcript: Transcript) -> list[str]:
    return [remove_whitespace(span.text) for span in transcript.spans]


@examples(300)
@given(cut_texts(), st.booleans(), st.booleans(), st.booleans())
def test_any_text_is_seen_once_however_it_is_cut(
    pieces: list[str], growing: bool, whole_status: bool, same_id: bool
) -> None:
    text = "".join(pieces)
    sent = grow(text, pieces) if growing else pieces
    frames = say_each(sent, same_id=same_id)
    if whole_status:
        frames.append(says(text, "whole"))
    transcript = seen(*frames, chunk("a", text), DONE)
    assert without_whitespace(transcript) == [remove_whitespace(text)]
    assert transcript.answer is not None
    assert transcript.answer.split() == text.split()


@examples(200)
@given(st.sampled_from([NARRATION, "Checking the cluster", "Let me look: ", "One moment!\n"]), cut_texts())
def test_narration_and_answer_in_one_run_are_seen_once(narration: str, answer: list[str]) -> None:
    text = "".join(answer)
    transcript = seen(*say_each([*tokens(narration), *answer]), chunk("a", text), DONE)
    assert "".join(without_whitespace(transcript)) == remove_whitespace(narration + text)
    assert without_whitespace(transcript)[-1] == remove_whitespace(text)
