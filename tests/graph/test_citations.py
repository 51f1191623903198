"""What an answer cites: marks become numbers while the text streams, and whatever names nothing that was
retrieved is removed."""

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ai_platform_engineering.core.events import Answered, Citation
from ai_platform_engineering.graph.citations import CitedText, RetrievedSources, find_own_numbers
from ai_platform_engineering.models.offline_model import OfflineModel
from tests.runtime.server.test_a2a_streams import reading
from tests.support.approving_agent import Person, only_request_id
from tests.support.dialects import V10
from tests.support.fakes.model import ScriptedChatModel
from tests.support.fakes.request import Request
from tests.support.fakes.script import Call, Gate, Hang, Say, Script, Turn, unique_pieces
from tests.support.fakes.site import Page, serve_site
from tests.support.harness import Client, Frame, ReceivedStream, agent
from tests.support.knowing_supervisor import DOCS, KnowledgeFolder
from tests.support.knowledge import add_datasource
from tests.support.processes import invoke_caipe
from tests.support.scenarios import data_of, token, tool
from tests.support.storages import in_folder

SLIM, KEYS, INVENTED = "0123abcd", "4567cdef", "[kb:deadbeef]"
QUESTION = "what is agntcy slim?"
FACT = "secure, low-latency, interactive messaging layer"
SEARCH = Turn(Say("I look."), Call("search", {"query": "agntcy slim"}))


# --- text in pieces -----------------------------------------------------------------------------------------


def row(mark: str, title: str, **more: Any) -> dict[str, Any]:
    return {
        "document_id": mark * 4,
        "title": title,
        "link": None,
        "snippet": "…",
        "cite": f"[kb:{mark}]",
        **more,
    }


def sources() -> RetrievedSources:
    known = RetrievedSources()
    known.add_result(
        json.dumps({"results": [row(SLIM, "SLIM", link="https://docs.example/slim"), row(KEYS, "Keys")]}),
        knowledge=True,
    )
    return known


def shown(*pieces: str) -> tuple[str, list[str]]:
    """What people see of a message that comes in these pieces, and the titles of what it cites."""
    cited = CitedText(sources())
    text = "".join(cited.feed(piece) for piece in pieces) + cited.end()
    return text, [one.title for one in cited.citations]


fragments = st.sampled_from(
    [
        "[",
        "]",
        "k",
        "b",
        "(",
        ")",
        "KB: ",
        "kb:",
        "[kb:",
        "[kb",
        SLIM,
        KEYS,
        "beef",
        "0",
        f"[kb:{SLIM}]",
        f"[kb:{KEYS}",
        f", kb:{SLIM}",
        ",",
        ";",
        " ",
        "\n",
        "a[1]",
    ]
)
texts = st.lists(fragments | st.text(max_size=3), max_size=14).map("".join)


@given(texts, st.data())
def test_however_a_text_is_cut_it_is_shown_the_same(text: str, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    pieces = [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    whole = shown(text)
    assert shown(*pieces) == whole
    assert shown(*text) == whole
    assert f"[kb:{SLIM}]" not in whole[0]
    if not find_own_numbers(text):
        assert sources().number_citations(text) == shown(text.lstrip())[0]


OWN_NUMBERS = ("[1]", "a[1]", "[2, 3]", "[1-2]", "[^1]", "\u30101\u3011", "[1]: https://a.example/", "`x[2]`")
own_numbers = st.lists(
    st.sampled_from([*OWN_NUMBERS, f" [kb:{SLIM}]", f" [kb:{KEYS}, {SLIM}]", " so "]), max_size=8
)


@given(own_numbers)
def test_our_numbers_are_none_that_the_model_writes_itself(parts: list[str]) -> None:
    text = "".join(parts)
    known = sources()
    numbered = known.number_citations(text)
    ours = [one.number for one in known.citations_in(numbered, None)]
    assert len(ours) == (SLIM in text) + (KEYS in text)
    assert len(set(ours)) == len(ours)
    assert find_own_numbers(text).isdisjoint(ours)
    for part in parts:
        if part in OWN_NUMBERS:
            assert part in numbered, "what the model wrote itself stays as it is"


@given(own_numbers, st.data())
def test_our_numbers_skip_those_of_the_model_that_have_streamed_before(
    parts: list[str], data: st.DataObject
) -> None:
    text = "".join(parts)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    pieces = [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert shown(*pieces) == shown(text)
    first_mark = text.find("[kb:")
    if first_mark >= 0:
        own_before = find_own_numbers(text[:first_mark])
        cited_text = CitedText(sources())
        cited_text.feed(text)
        cited_text.end()
        assert own_before.isdisjoint(one.number or 0 for one in cited_text.citations)


@pytest.mark.parametrize(
    ("text", "expected", "titles"),
    [
        (
            f"Agents [kb:{KEYS}] talk [kb:{SLIM}] safely [kb:{KEYS}].",
            "Agents [1] talk [2] safely [1].",
            ["Keys", "SLIM"],
        ),
        (f"So {INVENTED}[kb:{SLIM}]{INVENTED}.", "So [1].", ["SLIM"]),
        (f"So [kb:{SLIM}, kb:{KEYS}; kb:deadbeef,kb:{SLIM}].", "So [1][2].", ["SLIM", "Keys"]),
        (f"So [kb:{SLIM} ,\nkb:{KEYS}].", "So [1][2].", ["SLIM", "Keys"]),
        ("Only [kb:deadbeef, kb:deadbee1].", "Only .", []),
        (
            "`a[1] = b[k]`, [a link](https://docs.example/[x]), [ ] todo",
            "`a[1] = b[k]`, [a link](https://docs.example/[x]), [ ] todo",
            [],
        ),
        ("[kb:xyz] [kb] (k) (kb)", "[kb:xyz] [kb] (k) (kb)", []),
        (
            "[kb: 0123abcd] [KB:0123ABCD] (kb:0123abcd) \u3010kb : 4567cdef\u3011 [kb:0123abcd ]",
            "[1] [1] [1] [2] [1]",
            ["SLIM", "Keys"],
        ),
        (
            f"Full [kb:{SLIM * 4}], cut [kb:{SLIM * 2}], short [kb:{SLIM[:5]}].",
            "Full [1], cut [1], short [1].",
            ["SLIM"],
        ),
        (f"Both [kb:{SLIM}, {KEYS}] and none [kb:{SLIM * 5}].", "Both [1][2] and none .", ["SLIM", "Keys"]),
        (f"An end [kb:{SLIM}", "An end [1]", ["SLIM"]),
        (f"An end [kb:{SLIM}, kb:4", "An end [1]", ["SLIM"]),
        ("An end [kb:01", "An end ", []),
        ("An end [kb", "An end [kb", []),
    ],
)
def test_marks_become_numbers_and_the_rest_stays(text: str, expected: str, titles: list[str]) -> None:
    assert shown(text) == (expected, titles)
    assert shown(*text) == (expected, titles)


def test_only_what_may_become_a_mark_is_held_back() -> None:
    cited = CitedText(sources())
    fed = ["Agents ", "use a[", "1", "], [kb", ":0123", "abcd", "] and ", "[kbx", "[x]"]
    assert [cited.feed(piece) for piece in fed] == [
        "Agents ",
        "use a",
        "",
        "[1], ",
        "",
        "",
        "[2] and ",
        "[kbx",
        "[x]",
    ]
    assert cited.end() == ""


# --- what is known ------------------------------------------------------------------------------------------


def test_a_result_that_was_cut_or_has_words_behind_it_is_known_all_the_same() -> None:
    whole = json.dumps(
        {"query": "x", "results": [row(SLIM, "SLIM", link="https://docs.example/slim"), row(KEYS, "Keys")]}
    )
    page = json.dumps(
        {"document_id": "d" * 32, "title": "Page", "link": None, "cite": f"[kb:{KEYS}]", "text": "long " * 9}
    )
    for said in (f"{whole}\n\n[This is the same call.]", f"{whole[:-90]}\n[Output truncated]"):
        known = RetrievedSources()
        known.add_result(said, knowledge=True)
        assert known.get(SLIM) == Citation(
            title="SLIM", url="https://docs.example/slim", document_id=SLIM * 4
        )
    read = RetrievedSources()
    read.add_result(f"{page[:-20]}\n[Output truncated]", knowledge=True)
    assert read.get(KEYS) == Citation(title="Page", document_id="d" * 32)


@pytest.mark.parametrize(
    "said",
    [
        '{"results": null}',
        '{"results": 5}',
        '{"results": [1, "x", null]}',
        "[]",
        "5",
        "",
        '{"cite": 7}',
        '{"results": [{"cite": "[kb:"}]}',
    ],
)
def test_what_a_strange_server_says_does_no_harm(said: str) -> None:
    known = RetrievedSources()
    known.add_result(said, knowledge=True)
    assert known.number_citations(f"So [kb:{SLIM}].") == "So ."


def test_odd_values_are_texts_and_a_text_with_marks_is_known_by_them() -> None:
    known = RetrievedSources()
    known.add_result(
        json.dumps({"title": 5, "link": ["x"], "document_id": None, "cite": f"[kb:{SLIM}]"}), knowledge=True
    )
    known.add_result(f"In plain words [kb:{KEYS}]", knowledge=True)
    assert known.get(SLIM) == Citation(title="5", url="['x']")
    assert known.get(KEYS) == Citation(title=KEYS)


def test_marks_in_results_of_other_tools_are_none() -> None:
    known = RetrievedSources()
    known.add_result(json.dumps(row(SLIM, "SLIM")), knowledge=False)
    assert known.number_citations(f"So [kb:{SLIM}].") == "So ."


@pytest.mark.parametrize(
    ("named", "expected"),
    [
        (
            {"title": "X", "document_id": SLIM * 4, "url": "https://evil.example/"},
            ("SLIM", "https://docs.example/slim", SLIM * 4),
        ),
        ({"title": "X", "url": "https://docs.example/slim"}, ("SLIM", "https://docs.example/slim", SLIM * 4)),
        ({"title": "Run 7", "url": "https://ci.example/7"}, ("Run 7", "https://ci.example/7", None)),
        (
            {"title": "Run 7", "url": "https://ci.example/7", "document_id": "invented"},
            ("Run 7", "https://ci.example/7", None),
        ),
        ({"title": "X", "url": "https://ci.example/8"}, None),
        ({"title": "X", "document_id": "invented"}, None),
        ({"title": "SLIM"}, None),
    ],
    ids=json.dumps,
)
def test_a_named_source_is_what_was_seen_or_nothing(
    named: dict[str, str], expected: tuple[str, str, str] | None
) -> None:
    known = sources()
    known.add_result("See https://ci.example/7.", knowledge=False)
    cited = [
        (one.title, one.url, one.document_id) for one in known.citations_in("", {"citations": [named, named]})
    ]
    assert cited == ([expected] if expected else [])


# --- the whole path -----------------------------------------------------------------------------------------


@pytest.fixture
async def library(tmp_path: Path) -> KnowledgeFolder:
    return await KnowledgeFolder.of(tmp_path / "library")


def model(*steps: Any) -> ScriptedChatModel:
    return ScriptedChatModel(script=Script(*steps))


def found(request: Request) -> list[dict[str, Any]]:
    return list(json.loads(request.tool_results["search"][-1])["results"])


def quoting(request: Request) -> Turn:
    """Cites the second, the first, the second again and an invention, letter by letter."""
    first, second, *_ = (one["cite"] for one in found(request))
    return Turn(Say(*f"Groups {second}, layers {first}{INVENTED}; groups {second}, a[7]."))


QUOTED = "Groups [1], layers [2]; groups [1], a[7]."


def cited(seen: ReceivedStream) -> list[dict[str, Any]]:
    """The citations as data of the answer."""
    return [one for data in data_of(seen.named("final_result")[0]) for one in data["citations"]]


def as_found(one: dict[str, Any], number: int) -> dict[str, Any]:
    named = {"title": one["title"], "url": one["link"], "document_id": one["document_id"], "number": number}
    return {key: value for key, value in named.items() if value is not None}


async def test_marks_stream_as_numbers_and_the_answer_carries_what_they_mean(
    library: KnowledgeFolder,
) -> None:
    text = f"<html><head><title>SLIM on the web</title></head><body><p>{DOCS['slim'][8:]}</p></body></html>"
    async with serve_site({"/": Page(text)}) as served:
        async with library.open_knowledge_base() as kb:
            assert (await add_datasource(kb, served.url, name="web")).done == 1
        own = model(SEARCH, quoting)
        async with library.run_supervisor(own) as client:
            seen = await client.ask(QUESTION)
            again = await client.ask(QUESTION, version="1.0")
    for one in (seen, again):
        assert one.streamed_texts == ["I look.", QUOTED]
        assert one.answer == QUOTED
        assert "".join(one.texts("streaming_result")) == f"I look.{QUOTED}", (
            "nothing was taken back on the way"
        )
        assert b"deadbeef" not in one.raw
    first, second, *_ = found(own.requests[1])
    assert cited(seen) == cited(again) == [as_found(second, 1), as_found(first, 2)]
    assert {f"{served.url}/", None} == {first["link"], second["link"]}
    ended = seen.events[-1]
    assert isinstance(ended, Answered)
    assert [one.document_id for one in ended.citations] == [second["document_id"], first["document_id"]]


OWN_ANSWER = (
    "The model says [1] and {second}, in code:\n```\na[1] = b[2]\n```\nMore {first}, and {second}.\n\n"
    "[1]: https://own.example/"
)


def own_marks_first(request: Request) -> Turn:
    """Has footnotes and code of its own, and our marks after them, letter by letter."""
    first, second, *_ = (one["cite"] for one in found(request))
    return Turn(Say(*OWN_ANSWER.format(first=first, second=second)))


def own_marks_last(request: Request) -> Turn:
    """Cites first and writes a number of its own afterwards: only the end of the message shows the clash."""
    _, second, *_ = (one["cite"] for one in found(request))
    return Turn(Say(*f"Groups {second}. See [1] in my list."))


@pytest.mark.parametrize("version", ["0.3", "1.0"])
async def test_numbers_of_the_model_are_never_taken_for_ours(library: KnowledgeFolder, version: str) -> None:
    own = model(SEARCH, own_marks_first)
    async with library.run_supervisor(own) as client:
        seen = await client.ask(QUESTION, version=version)
    first, second, *_ = found(own.requests[1])
    assert seen.answer == OWN_ANSWER.format(first="[4]", second="[3]")
    assert cited(seen) == [as_found(second, 3), as_found(first, 4)]
    assert seen.streamed_texts == ["I look.", seen.answer]


@pytest.mark.sample(2)
@pytest.mark.parametrize("version", ["0.3", "1.0"])
@pytest.mark.parametrize("env", [{}, {"USE_STRUCTURED_RESPONSE": "true"}], ids=["plain", "structured"])
async def test_a_number_of_the_model_after_ours_changes_ours(
    library: KnowledgeFolder, version: str, env: dict[str, str]
) -> None:
    def structured_last(request: Request) -> Turn:
        first, second, *_ = found(request)
        content = f"Groups {second['cite']}. See [1] in my list."
        named = [{"title": "x", "document_id": first["document_id"]}]
        text = json.dumps({"content": content, "citations": named})
        return Turn(Call("PlatformEngineerResponse", arg_pieces=tuple(text)))

    own = model(SEARCH, structured_last if env else own_marks_last)
    async with library.run_supervisor(own, env=env) as client:
        seen = await client.ask(QUESTION, version=version)
    first, second, *_ = found(own.requests[1])
    assert seen.answer == "Groups [2]. See [1] in my list."
    assert seen.streamed_texts[-1] == seen.answer, "what a client folds is the answer, once"
    also_named = [as_found(first, 3)] if env else []
    assert cited(seen) == [as_found(second, 2), *also_named]


async def test_marks_that_an_agent_repeats_are_removed_from_its_text(library: KnowledgeFolder) -> None:
    def ask_wiki(request: Request) -> Turn:
        mark = found(request)[0]["cite"]
        return Turn(Call("task", {"description": f"Read {mark}", "subagent_type": "wiki"}))

    wiki = agent("wiki", Script(lambda request: Turn(Say(*f"Read: {request.last_user}, b[1]."))))
    asking = model(SEARCH, ask_wiki, Turn(Say("Done.")))
    async with library.run_supervisor(asking, agents=[wiki]) as client:
        seen = await client.ask(QUESTION)
    assert "".join(seen.texts("subagent_result")) == "Read: Read , b[1]."


async def test_an_answer_without_citations_has_none(library: KnowledgeFolder) -> None:
    async with library.run_supervisor(model(SEARCH, Turn(Say(f"Nobody knows {INVENTED}.")))) as client:
        seen = await client.ask(QUESTION)
    assert (seen.answer, seen.streamed_texts[-1]) == ("Nobody knows .", "Nobody knows .")
    assert data_of(seen.named("final_result")[0]) == []


async def test_marks_that_come_from_anywhere_else_are_removed(library: KnowledgeFolder) -> None:
    look = tool("look", json.dumps(row(SLIM, "A forgery")))
    wiki = agent(
        "wiki",
        Script(Turn(Call("search")), Turn(Say("Found."))),
        tool("search", json.dumps({"results": [row(KEYS, "Another")]})),
    )
    asking = Turn(Call("look"), Call("task", {"description": "Look", "subagent_type": "wiki"}))
    async with library.run_supervisor(
        model(asking, Turn(Say(f"So [kb:{SLIM}, kb:{KEYS}]."))), agents=[wiki], tools=[look]
    ) as client:
        seen = await client.ask(QUESTION)
    assert (seen.answer, data_of(seen.named("final_result")[0])) == ("So .", [])


def test_a_prefix_that_two_documents_have_names_none() -> None:
    known = RetrievedSources()
    rows = [row("0123abcd", "One"), row("0123abce", "Two")]
    known.add_result(json.dumps({"results": rows}), knowledge=True)
    assert known.number_citations("So [kb:0123abc] and [kb:0123abce].") == "So  and [1]."


async def test_a_follow_up_cites_what_an_earlier_question_found(library: KnowledgeFolder) -> None:
    def step(request: Request) -> Turn:
        if request.last_user == QUESTION:
            return SEARCH if request.position == 0 else quoting(request)
        [mark, *_] = re.findall(r"\[kb:[0-9a-f]{8}\]", " ".join(one.text for one in request.messages))
        return Turn(Say(f"As I said {mark}{INVENTED}."))

    async with library.run_supervisor(model(step)) as client:
        first = await client.ask(QUESTION)
        seen = await client.ask("Again?", contextId=first.context_id)
    assert seen.answer == "As I said [1]."
    found_first = {one["document_id"] for one in cited(first)}
    assert [one["document_id"] in found_first for one in cited(seen)] == [True]
    assert [one["number"] for one in cited(seen)] == [1]


def structured(request: Request, *more: dict[str, Any]) -> Turn:
    first, second, *_ = found(request)
    content = f"Groups {second['cite']}{INVENTED}, layers."
    named = [
        {"title": "whatever", "document_id": first["document_id"]},
        {"title": "no", "document_id": "0" * 32},
        *more,
    ]
    text = json.dumps({"content": content, "citations": named})
    return Turn(Call("PlatformEngineerResponse", arg_pieces=tuple(text)))


async def test_a_structured_answer_cites_in_the_same_way(library: KnowledgeFolder) -> None:
    own = model(SEARCH, lambda request: structured(request, {"title": "no", "url": "https://evil.example/"}))
    async with library.run_supervisor(own, env={"USE_STRUCTURED_RESPONSE": "true"}) as client:
        seen = await client.ask(QUESTION)
    first, second, *_ = found(own.requests[1])
    assert seen.answer == "Groups [1], layers."
    assert seen.streamed_texts == ["I look.", seen.answer]
    [data] = data_of(seen.named("final_result")[0])
    assert data == {"content": seen.answer, "citations": [as_found(second, 1), as_found(first, 2)]}
    assert b"evil.example" not in seen.raw
    assert b"deadbeef" not in seen.raw


async def test_a_structured_answer_that_cites_only_inventions_cites_nothing(library: KnowledgeFolder) -> None:
    answer = Turn(
        Call(
            "PlatformEngineerResponse",
            {"content": "So.", "citations": [{"title": "no", "url": "https://evil.example/"}]},
        )
    )
    async with library.run_supervisor(
        model(SEARCH, answer), env={"USE_STRUCTURED_RESPONSE": "true"}
    ) as client:
        seen = await client.ask(QUESTION)
    assert data_of(seen.named("final_result")[0]) == [{"content": "So.", "citations": []}]
    assert b"evil.example" not in seen.raw


@pytest.mark.parametrize("env", [{}, {"USE_STRUCTURED_RESPONSE": "true"}], ids=["plain", "structured"])
async def test_what_was_found_before_a_pause_and_a_restart_can_be_cited(
    library: KnowledgeFolder, tmp_path: Path, env: dict[str, str]
) -> None:
    asking = Turn(Call("CAIPEAgentResponse", {"response": "Which one?"}))
    own = model(SEARCH, asking, structured if env else quoting)
    async with library.run_supervisor(own, storage=(storage := in_folder(tmp_path)), env=env) as client:
        paused = await Person(client, storage).ask(QUESTION)
        assert paused.last.state == "input-required"
    async with library.run_supervisor(own, storage=(storage := in_folder(tmp_path)), env=env) as client:
        seen = await Person(client, storage).answer(paused, {only_request_id(paused): {"answer": "that"}})
    first, second, *_ = found(own.requests[-1])
    assert seen.answer == ("Groups [1], layers." if env else QUOTED)
    assert cited(seen) == [as_found(second, 1), as_found(first, 2)]


async def test_what_was_found_before_the_server_was_stopped_can_be_cited(
    library: KnowledgeFolder, tmp_path: Path
) -> None:
    async with library.run_supervisor(model(SEARCH, Turn(Hang())), storage=in_folder(tmp_path)) as client:
        seen: list[Frame] = []
        async for frame in client.stream(QUESTION, version="1.0"):
            seen.append(frame)
            if frame.text.startswith("✅"):
                break
    own = model(quoting)
    async with (
        library.run_supervisor(own, storage=in_folder(tmp_path)) as client,
        reading(client, V10, ReceivedStream(seen).task_id, "0") as (reader,),
    ):
        pass
    whole = ReceivedStream(reader.frames)
    first, second, *_ = found(own.requests[-1])
    assert len(library.counts.searches) == 1
    assert (whole.last.state, whole.answer, whole.streamed_texts[-1]) == ("completed", QUOTED, QUOTED)
    assert cited(whole) == [as_found(second, 1), as_found(first, 2)]


# --- "what is agntcy slim?" ---------------------------------------------------------------------------------


async def resolved(library: KnowledgeFolder, seen: ReceivedStream) -> list[str]:
    """The documents that the answer's numbers lead to."""
    named = cited(seen)
    numbers = {int(number) for number in re.findall(r"\[(\d+)\]", seen.answer)}
    assert numbers == {one["number"] for one in named}
    async with library.open_knowledge_base() as kb:
        return [(await kb.fetch_document(one["document_id"])).text for one in named]


async def test_the_embedded_router_answers_from_documents(library: KnowledgeFolder) -> None:
    async with library.run_supervisor(None, router=OfflineModel()) as client:
        seen = await client.ask(QUESTION)
    assert seen.last.state == "completed"
    assert FACT in seen.answer
    assert seen.streamed_texts[-1] == seen.answer
    assert seen.notifications == [
        "🔧 Supervisor: Calling tool: Search\n",
        "✅ Supervisor: Tool Search completed\n",
    ]
    first, *_ = await resolved(library, seen)
    assert FACT in first


@pytest.mark.parametrize("version", ["0.3", "1.0"])
async def test_a_model_answers_from_documents_and_nothing_is_held_back(
    library: KnowledgeFolder, version: str
) -> None:
    gate, mark = Gate(), "{{tool:search.results.0.cite}}"
    one, two, three, four = unique_pieces("answer", 4, random.Random())
    pieces = (f"{one} ", f"{two}{mark}", f" {three}{INVENTED}", f" {four}{mark}")
    own = model(SEARCH, Turn(Say(*pieces), gate=gate))
    kept: list[Frame] = []
    async with library.run_supervisor(own) as client:
        async for frame in client.stream(QUESTION, version=version):
            kept.append(frame)
            if frame.name == "streaming_result" and frame.text:
                known = found(own.requests[1])[0]["cite"] if len(own.requests) > 1 else ""
                # The gate waits for what the model wrote; people see something else in the place of marks.
                gate.seen(frame.text.replace("[1]", known).replace(three, f"{three}{INVENTED}"))
    seen = ReceivedStream(kept)
    assert gate.failure is None
    assert len(gate.sent) == len(pieces)
    assert seen.answer == f"{one} {two}[1] {three} {four}[1]"
    assert FACT in (await resolved(library, seen))[0]


# --- for people ---------------------------------------------------------------------------------------------


async def asked(client: Client, *arguments: str) -> str:
    done = await invoke_caipe("ask", *arguments, QUESTION, env={"CAIPE_URL": client.url})
    assert done.code == 0, done.err
    return done.out


async def test_the_command_prints_our_numbers_beside_those_of_the_model(library: KnowledgeFolder) -> None:
    own = model(SEARCH, own_marks_last)
    async with library.run_supervisor(own) as client:
        printed = await asked(client)
    second = found(own.requests[1])[1]
    assert printed == f"Groups [2]. See [1] in my list.\n\nSources:\n[2] {second['title']}\n"


async def test_the_command_prints_the_sources_behind_the_answer(library: KnowledgeFolder) -> None:
    title = token("page")
    async with serve_site(
        {"/": Page(f"<title>{title}</title><p>Agents on SLIM, the agntcy SLIM.</p>")}
    ) as served:
        async with library.open_knowledge_base() as kb:
            await add_datasource(kb, served.url, name="web")
        own = model(SEARCH, quoting)
        async with library.run_supervisor(own) as client:
            printed, lines = await asked(client), await asked(client, "--json")
    first, second, *_ = found(own.requests[1])
    named = [
        f"[{n}] {one['title']}{f' <{served.url}/>' if one['link'] else ''}"
        for n, one in enumerate((second, first), 1)
    ]
    assert printed == "\n".join([QUOTED, "", "Sources:", *named, ""])
    assert title in printed
    assert [one["title"] for one in json.loads(lines.splitlines()[-1])["citations"]] == [
        second["title"],
        first["title"],
    ]
