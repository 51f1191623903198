"""The two protocol versions side by side: what a method is called, how a message is written, where a task is
found."""

import uuid
from dataclasses import dataclass
from typing import Any

import pytest


@dataclass(frozen=True, slots=True)
class Dialect:
    """One protocol version in the words of its JSON."""

    version: str
    send: str
    stream: str
    get: str
    cancel: str
    subscribe: str
    user: str

    def __str__(self) -> str:
        return self.version

    @property
    def old(self) -> bool:
        return self.version == "0.3"

    def text(self, text: str) -> dict[str, Any]:
        return {"kind": "text", "text": text} if self.old else {"text": text}

    def data(self, data: Any) -> dict[str, Any]:
        return {"kind": "data", "data": data} if self.old else {"data": data}

    def file(self, content: str, name: str, media_type: str | None = None) -> dict[str, Any]:
        """A file with its content in base64."""
        kind = {} if media_type is None else {"mimeType" if self.old else "mediaType": media_type}
        if self.old:
            return {"kind": "file", "file": {"bytes": content, "name": name, **kind}}
        return {"raw": content, "filename": name, **kind}

    def linked(self, url: str) -> dict[str, Any]:
        return {"kind": "file", "file": {"uri": url}} if self.old else {"url": url}

    def message(self, *parts: dict[str, Any] | str, **more: Any) -> dict[str, Any]:
        """The parameters of a message; a string is a text part."""
        message_id = more.pop("messageId", None) or str(uuid.uuid4())
        written = [self.text(part) if isinstance(part, str) else part for part in parts]
        return {"message": {"role": self.user, "messageId": message_id, "parts": written, **more}}

    @property
    def at_once(self) -> dict[str, Any]:
        """The configuration that does not wait for the end."""
        return {"configuration": {"blocking": False} if self.old else {"returnImmediately": True}}

    def sent(self, answer: dict[str, Any]) -> dict[str, Any]:
        """The task in the answer to a message."""
        result: dict[str, Any] = answer["result"]
        return result if self.old else result["task"]

    def state(self, task: dict[str, Any]) -> str:
        return str(task["status"]["state"]).removeprefix("TASK_STATE_").lower().replace("_", "-")


V03 = Dialect(
    "0.3", "message/send", "message/stream", "tasks/get", "tasks/cancel", "tasks/resubscribe", "user"
)
V10 = Dialect(
    "1.0", "SendMessage", "SendStreamingMessage", "GetTask", "CancelTask", "SubscribeToTask", "ROLE_USER"
)

both_versions = pytest.mark.parametrize("dialect", [V03, V10], ids=str)


def artifact(task: dict[str, Any], name: str) -> dict[str, Any]:
    """The one artifact of this name in a task."""
    (named_artifact,) = [one for one in task.get("artifacts") or () if one["name"] == name]
    return dict(named_artifact)


def text_of(found: dict[str, Any]) -> str:
    return "".join(part.get("text") or "" for part in found["parts"])
