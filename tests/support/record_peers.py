"""Records what the frameworks of others really send, for the tests that run without them.

    PYTHONPATH=tests/support/guard .venv/bin/python -m tests.support.record_peers

Run it after a new version of a framework (`make peers` first); it writes `tests/fixtures/peers/recordings`.
"""

import json
import uuid
from typing import Any

import httpx

from tests.support.fakes.script import tokens
from tests.support.harness import PLAIN
from tests.support.peers import (
    NARRATION,
    PEERS,
    RECORDINGS,
    RunningPeer,
    run_peer,
    write_question,
)

ANSWER = "Version 2.9 runs.\n\nIt is fine."
REASON = "The quota is used up."
URL = "{url}"  # stands for the server's address
_SECONDS = 60.0

QUESTIONS = {
    "delegation": write_question(
        {"say": tokens(NARRATION), "call": {"app": "shop"}}, {"say": tokens(ANSWER)}
    ),
    "error": write_question({"say": ["Let", " me", {"raise": REASON}]}),
}


def record(running: RunningPeer) -> dict[str, Any]:
    """The card, and for each question the bodies of the responses, in order."""
    with httpx.Client(verify=PLAIN, timeout=_SECONDS) as http:
        card = http.get(f"{running.url}.well-known/agent-card.json").json()
        recording = {"version": running.peer.version, "card": card}
        for name, question in QUESTIONS.items():
            recording[name] = _record_question(http, running.url, card, question)
    text = json.dumps(recording).replace(running.url, URL)
    whole: dict[str, Any] = json.loads(text)
    return whole


def _record_question(
    http: httpx.Client, url: str, card: dict[str, Any], question: str
) -> list[dict[str, Any]]:
    interfaces = card.get("supportedInterfaces") or [{"protocolVersion": card["protocolVersion"]}]
    is_legacy = interfaces[0]["protocolVersion"].startswith("0.")
    message = {"messageId": str(uuid.uuid4()), "role": "ROLE_USER", "parts": [{"text": question}]}
    if is_legacy:
        message |= {"role": "user", "parts": [{"kind": "text", "text": question}]}
    if card["capabilities"].get("streaming"):
        method = "message/stream" if is_legacy else "SendStreamingMessage"
        return _call(http, url, method, {"message": message}, is_legacy=is_legacy)
    configuration = {"blocking": False} if is_legacy else {"returnImmediately": True}
    method = "message/send" if is_legacy else "SendMessage"
    params = {"message": message, "configuration": configuration}
    bodies = _call(http, url, method, params, is_legacy=is_legacy)
    return bodies + _poll(http, url, bodies[0]["result"], is_legacy=is_legacy)


def _poll(http: httpx.Client, url: str, result: dict[str, Any], *, is_legacy: bool) -> list[dict[str, Any]]:
    """The task when it is over."""
    task_id = result.get("task", result)["id"]
    while True:
        params = {"id": task_id, "historyLength": 20}
        bodies = _call(http, url, "tasks/get" if is_legacy else "GetTask", params, is_legacy=is_legacy)
        state = bodies[0]["result"]["status"]["state"].lower()
        if state.endswith(("completed", "failed")):
            return bodies


def _call(
    http: httpx.Client, url: str, method: str, params: dict[str, Any], *, is_legacy: bool
) -> list[dict[str, Any]]:
    body = {"jsonrpc": "2.0", "id": "1", "method": method, "params": params}
    headers = {"A2A-Version": "0.3" if is_legacy else "1.0"}
    response = http.post(url, json=body, headers=headers)
    if response.headers["content-type"].startswith("text/event-stream"):
        lines = [line for line in response.text.splitlines() if line.startswith("data: ")]
        return [json.loads(line.removeprefix("data: ")) for line in lines]
    return [response.json()]


def main() -> None:
    RECORDINGS.mkdir(exist_ok=True)
    for peer in PEERS:
        with run_peer(peer) as running:
            lines = json.dumps(record(running), indent=1, ensure_ascii=False)
        (RECORDINGS / f"{peer}.json").write_text(f"{lines}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
