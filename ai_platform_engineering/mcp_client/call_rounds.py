"""A tool call in rounds: a server of the protocol of 2026-07-28 may answer that it requires input first."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal

import anyio
from mcp import types
from pydantic import BaseModel, Field

from ai_platform_engineering.mcp_client.elicitation import (
    MAX_QUESTIONS,
    AnsweredQuestion,
    CallPause,
    CallPaused,
    ResumableCall,
    ServerQuestion,
    read_question,
)
from ai_platform_engineering.mcp_client.mcp_errors import RequestRejectedError
from ai_platform_engineering.mcp_client.open_call import CANCELLED, OpenCall
from ai_platform_engineering.mcp_client.secret_redactor import SecretRedactor

_INPUT_REQUIRED = "input_required"
_ELICITATION = "elicitation/create"
_LOST_STATE = "invalid_request_state"  # the reason that the protocol's library gives
_MAX_ROUNDS = 10  # of one call that the server answers without a result and without a question
_FIRST_ROUND_SECONDS = 0.05
_LONGEST_ROUND_SECONDS = 0.25


class CallAnswer(BaseModel):
    """A tool's answer, read leniently: an unknown kind of content must not cost the rest."""

    resultType: str | None = None
    inputRequests: dict[str, dict[str, Any]] | None = None
    requestState: str | None = None
    content: list[Any] = Field(default_factory=list)
    structuredContent: Any = None
    isError: bool = False


SendCall = Callable[[OpenCall, dict[str, Any]], Awaitable[CallAnswer]]


class QuestionReader:
    """Reads the questions of one server."""

    def __init__(self, server: str, redactor: SecretRedactor) -> None:
        self.server = server
        self._redactor = redactor

    def read(self, tool: str, params: Mapping[str, Any], key: str = "") -> ServerQuestion:
        """The form for the parameters of an elicitation. Raises RequestRejectedError."""
        question = read_question(self.server, tool, params, self._redactor, key)
        if question is None:
            raise RequestRejectedError("it asks something that cannot be shown as a form")
        return question


async def call_in_rounds(
    send: SendCall,
    call: OpenCall,
    params: dict[str, Any],
    questions: QuestionReader,
    resumable: ResumableCall | None,
) -> CallAnswer:
    """The answer to a call, after as many requests as the server needs without people. Raises CallPaused."""
    delay = _FIRST_ROUND_SECONDS
    known_answers: list[AnsweredQuestion] = []  # that the server has lost
    for _ in range(_MAX_ROUNDS):
        try:
            answer = await send(call, params)
        except RequestRejectedError as error:
            if resumable is not None and params.get("requestState") and _has_lost_state(error):
                known_answers = list(resumable.answered)
                params = {**params, "requestState": None, "inputResponses": None}
                continue
            _pause_for_links(call, error, questions, resumable)
            raise
        if answer.resultType != _INPUT_REQUIRED:
            return answer
        responses = _answer_at_once(call, answer, questions, resumable, known_answers)
        params = {**params, "requestState": answer.requestState, "inputResponses": responses}
        await anyio.sleep(delay)
        delay = min(2 * delay, _LONGEST_ROUND_SECONDS)
    raise RequestRejectedError(f"it still asks for more after {_MAX_ROUNDS} rounds")


def resume_params(resumable: ResumableCall | None) -> dict[str, Any]:
    """What a call sends when it is made again with the answers to a server's questions."""
    if resumable is None or resumable.pause is None:
        return {}
    pause = resumable.pause
    if pause.kind == "repeat" and any(answer.action != "accept" for answer in resumable.answers):
        raise RequestRejectedError("A person declined what the server asked for before the call.")
    if pause.kind != "retry":
        return {}
    responses = {}
    for question, answer in zip(pause.questions, resumable.answers, strict=True):
        responses[question.key] = answer.model_dump(exclude_none=True)
    return {"inputResponses": responses, "requestState": pause.request_state}


def _has_lost_state(error: RequestRejectedError) -> bool:
    """Whether the server does not take its own state back: it was restarted, or people took too long.

    It has done nothing then, and begins anew.
    """
    if error.code != types.INVALID_PARAMS:
        return False
    reason = error.data.get("reason") if isinstance(error.data, dict) else None
    return reason == _LOST_STATE or "requeststate" in str(error).lower()


def _answer_at_once(
    call: OpenCall,
    answer: CallAnswer,
    questions: QuestionReader,
    resumable: ResumableCall | None,
    known_answers: list[AnsweredQuestion],
) -> dict[str, Any] | None:
    """What is answered without people: nothing was asked, all of it was answered before, or nobody can be
    asked. Raises CallPaused."""
    input_requests = answer.inputRequests or {}
    if not input_requests:
        return None
    if resumable is None:
        return {key: CANCELLED.model_dump(exclude_none=True) for key in input_requests}
    new_questions = list[ServerQuestion]()
    for key, input_request in input_requests.items():
        method = input_request.get("method")
        if method != _ELICITATION:
            raise RequestRejectedError(f"it asks for {str(method)[:60]}, which it is not offered")
        new_questions.append(questions.read(call.tool, input_request.get("params") or {}, key))
    responses = _answer_again(new_questions, known_answers)
    if responses is not None:
        return responses
    pause = _make_pause("retry", new_questions, resumable)
    raise CallPaused(pause.model_copy(update={"request_state": answer.requestState}))


def _answer_again(
    questions: Sequence[ServerQuestion], known_answers: list[AnsweredQuestion]
) -> dict[str, Any] | None:
    """The answers that people have given to these questions; None if one of them is new."""
    responses: dict[str, Any] = {}
    remaining = list(known_answers)
    for question in questions:
        answered = next((answered for answered in remaining if answered.question == question), None)
        if answered is None:
            return None
        remaining.remove(answered)
        responses[question.key] = answered.answer.model_dump(exclude_none=True)
    known_answers[:] = remaining
    return responses


def _pause_for_links(
    call: OpenCall,
    error: RequestRejectedError,
    questions: QuestionReader,
    resumable: ResumableCall | None,
) -> None:
    """Asks people to open the addresses without which the server refuses a call. Raises CallPaused."""
    if error.code != types.URL_ELICITATION_REQUIRED or resumable is None:
        return
    elicitations = error.data.get("elicitations") if isinstance(error.data, dict) else None
    if isinstance(elicitations, list) and elicitations:
        links = [{**link, "mode": "url"} for link in elicitations if isinstance(link, dict)]
        link_questions = [questions.read(call.tool, link) for link in links]
        raise CallPaused(_make_pause("repeat", link_questions, resumable))


def _make_pause(
    kind: Literal["retry", "repeat"], questions: Sequence[ServerQuestion], resumable: ResumableCall
) -> CallPause:
    if resumable.asked_count + len(questions) > MAX_QUESTIONS:
        raise RequestRejectedError(f"it asks more than {MAX_QUESTIONS} questions in one call")
    earlier = tuple(answered.question for answered in resumable.answered)
    return CallPause(
        questions=tuple(questions), kind=kind, asked_before=resumable.asked_count, earlier=earlier
    )
