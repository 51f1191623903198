"""Arbitrary answers to a form: each is accepted or sent back with a reason, and nothing breaks inside."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.runtime.server.test_a2a_input_required import form_tool, paused, request_id
from tests.support.dialects import V10
from tests.support.fakes.script import Call, Say, Script, Turn
from tests.support.fuzzing import json_values, nothing_breaks, server_examples
from tests.support.harness import Client, ReceivedStream, supervisor
from tests.support.health_witness import health_witness

SCRIPT = Script(Turn(Call("ask_form")), Turn(Say("Done.")))
TYPES = ("text", "textarea", "select", "multiselect", "boolean", "integer", "number", "date", "url", "email")
FIELDS = [
    {
        "field_name": field_type,
        "field_type": field_type,
        "required": False,
        "pattern": "(a+)+b",
        "field_values": ["a", "b"],
        "minimum": 0,
        "max_length": 5_000,
    }
    for field_type in TYPES
]
VALUES = json_values(
    *TYPES, "type", "arguments", "message", "decisions", "args", "edited_action", "user_inputs"
)
ODD = st.sampled_from(
    ["a" * 4_000, "9" * 4_000, "1e999", "NaN", "²", "--1", "2026-02-31", "http://[", "a@" + "." * 4_000]
)
FORM_VALUES = st.dictionaries(st.sampled_from(TYPES), ODD | VALUES, max_size=6)
DECISION = st.fixed_dictionaries(
    {"type": st.sampled_from(["approve", "accept", "edit", "reject", "response"]) | VALUES},
    optional={"args": VALUES, "message": VALUES, "edited_action": VALUES, "action_name": VALUES},
)
ANSWER = (
    st.builds(lambda values: {"resume": {"ID": values}}, FORM_VALUES | DECISION | VALUES)
    | st.builds(
        lambda decisions: {"resume": {"decisions": decisions}}, st.lists(DECISION, max_size=3) | VALUES
    )
    | st.builds(lambda values: {"resume": values}, VALUES)
    | FORM_VALUES
)


@given(st.lists(ANSWER, min_size=10, max_size=20))
@server_examples(3)
async def test_any_answer_is_accepted_or_sent_back(answers: list[Any]) -> None:
    async with supervisor(SCRIPT, tools=[form_tool(FIELDS)]) as client:
        with nothing_breaks():
            async with health_witness(client.url):
                stream = await paused(client, V10)
                for answer in answers:
                    stream = await send_answer(client, stream, answer)


async def send_answer(client: Client, stream: ReceivedStream, answer: Any) -> ReceivedStream:
    """What waits for the next answer: the same request, or a new one when this one was accepted."""
    resume = answer.get("resume")
    if isinstance(resume, dict) and "ID" in resume:
        answer = {"resume": {request_id(stream): resume["ID"]}}
    params = V10.message(V10.data(answer), taskId=stream.task_id)
    request = {"jsonrpc": "2.0", "id": "1", "method": V10.send, "params": params}
    headers = {
        "Content-Type": "application/json",
        "A2A-Version": "1.0",
        "A2A-Extensions": "urn:caipe:events:1",
    }
    response = (await client.http.post(client.url, content=json.dumps(request), headers=headers)).json()
    if "error" in response:
        assert response["error"]["code"] in (-32602, -32004), response
        return stream
    state = V10.state(V10.sent(response))
    assert state in ("input-required", "completed", "failed"), response
    if state == "input-required":
        return stream
    return await paused(client, V10)
