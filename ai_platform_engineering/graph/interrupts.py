"""The requests in a LangGraph interrupt: one form or approval, or all that a remote agent waits for."""

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from langgraph.types import Interrupt

from ai_platform_engineering.core.events import FREE_TEXT_FIELD, Approval, Form
from ai_platform_engineering.core.forms import next_request_id

_REQUESTS = "requests"


@dataclass(frozen=True, slots=True)
class InterruptRequest:
    """A form or an approval. `key` is its name in an interrupt that holds several."""

    first_id: str
    asked: Form | Approval
    key: str | None = None

    def request_id(self, resolved: Collection[str]) -> str:
        """Our own id of the pending request.

        LangGraph's ids never leave the process: a tool that asks twice asks under the same one. What was
        `resolved` before was another request.
        """
        request_id = self.first_id
        while request_id in resolved:
            request_id = next_request_id(request_id)
        return request_id


def interrupt_for_requests(place: str, requests: Mapping[str, Any]) -> dict[str, Any]:
    """An interrupt that holds several requests, by their names at the place where they were asked.

    Its answer holds some of them; a request that the next interrupt of the same place repeats keeps its id.
    """
    return {"type": _REQUESTS, "place": place, "requests": dict(requests)}


def interrupt_requests(run_id: str, interrupt: Any) -> list[InterruptRequest]:
    value = interrupt.value
    if isinstance(value, Mapping) and value.get("type") == _REQUESTS:
        requests = []
        for key, asked in value["requests"].items():
            first_id = _request_id(run_id, f"{value['place']}\n{key}")
            requests.append(InterruptRequest(first_id, _read_request(asked), key))
        return requests
    return [InterruptRequest(_request_id(run_id, interrupt.id), _read_request(value))]


def first_request_id(run_id: str, ns: str) -> str:
    """The id under which code in this namespace of the graph asks first."""
    return _request_id(run_id, Interrupt.from_ns(None, ns).id)


def _request_id(run_id: str, place: str) -> str:
    return hashlib.sha256(f"{run_id}\n{place}".encode()).hexdigest()[:20]


def _read_request(value: Any) -> Form | Approval:
    """A form, an approval, or a question in plain words."""
    if isinstance(value, Form | Approval):
        return value
    if isinstance(value, Mapping):
        if value.get("type") == "approval":
            return Approval.model_validate(value)
        if value.get("type") == "form":
            return Form.model_validate(value)
        if requests := value.get("action_requests"):
            first = requests[0]
            return Approval(
                tool=first["name"], arguments=first.get("args") or {}, reason=first.get("description") or ""
            )
    return Form(
        response=str(value),
        fields=(FREE_TEXT_FIELD,),
    )
