"""Artifacts of a third-party agent: streamed, replaced and whole results, as text events and as an answer."""

from collections.abc import Iterable

from a2a.types import Artifact, Part, Task

from ai_platform_engineering.a2a.codec import FINAL_RESULT, PARTIAL_RESULT
from ai_platform_engineering.a2a.third_party_messages import (
    MAX_TEXT_LENGTH,
    ThirdPartyMessages,
    truncate_text,
)
from ai_platform_engineering.a2a.third_party_narration import (
    STATUS_PREFIX,
    ThirdPartyNarration,
    is_continuation,
)
from ai_platform_engineering.a2a.third_party_parts import has_text, read_data, read_text
from ai_platform_engineering.core.events import AnyEvent

ARTIFACT_PREFIX = "artifact:"

_COMPLETE_RESULT = "complete_result"
_CURRENT_RESULT = "current_result"  # older servers end their response with an empty one
# Names of artifacts that hold a whole answer; the first that is there counts.
_RESULT_NAMES = (FINAL_RESULT, _COMPLETE_RESULT, PARTIAL_RESULT)


class ThirdPartyArtifacts:
    """The artifacts of one turn. Their texts are messages; results and data are shown at its end."""

    def __init__(self, messages: ThirdPartyMessages, narration: ThirdPartyNarration) -> None:
        self._messages = messages
        self._narration = narration
        self._results: dict[str, dict[str, str]] = {name: {} for name in _RESULT_NAMES}
        self._data_texts: dict[str, list[str]] = {}
        # Keys of artifacts with text of their own, not only names of files.
        self._text_keys: set[str] = set()
        # Keys of artifacts with a tool call: their text is narration, as before any other call.
        self._calling_keys: set[str] = set()

    def read(
        self, artifact: Artifact, id_base: str, *, append: bool, is_mark: bool, may_lag: bool
    ) -> list[AnyEvent]:
        """The events of an artifact's text.

        `is_mark`: without a text the artifact is a mark of the end, not a replacement by nothing. `may_lag`:
        it is from a stored task, which may be behind its stream."""
        key = _key(artifact)
        self._store_data(key, artifact.parts, append=append)
        if artifact.name in _RESULT_NAMES:
            self._store_result(artifact, append=append, may_lag=may_lag)
            return []
        old_text = self._messages.text(key)
        text = read_text(artifact.parts, is_start=not (append and old_text))
        if not text and (is_mark or not old_text or artifact.name == _CURRENT_RESULT):
            return []
        if has_text(artifact.parts):
            self._text_keys.add(key)
        if not old_text:
            events = self._move_narration(key, text, append=append)
            if events is not None:
                return events
        return [
            *self._narration.end_run(),
            *self._write(key, id_base, text, append=append, may_lag=may_lag),
        ]

    def mark_as_call(self, artifact: Artifact) -> None:
        """The artifact has a tool call: its text is no answer."""
        self._calling_keys.add(_key(artifact))

    def discard_removed(self, task: Task) -> list[AnyEvent]:
        """Discards the texts of artifacts that the task does not have any more."""
        events: list[AnyEvent] = []
        present_keys = {_key(artifact) for artifact in task.artifacts}
        for key in self._messages.keys(ARTIFACT_PREFIX):
            if key not in present_keys:
                events += self._messages.discard(key)
        return events

    @property
    def texts(self) -> list[str]:
        """The texts of the artifacts; without those that led to a tool call, unless there are no others."""
        keys = [key for key in self._messages.keys(ARTIFACT_PREFIX) if self._messages.text(key).strip()]
        answer_keys = [key for key in keys if key not in self._calling_keys]
        return [self._messages.text(key) for key in answer_keys or keys]

    @property
    def has_text(self) -> bool:
        """Whether there is more than names of files."""
        return any(self._messages.text(key).strip() for key in self._text_keys)

    @property
    def data_text(self) -> str:
        texts: list[str] = []
        for artifact_texts in self._data_texts.values():
            texts += artifact_texts
        return "\n".join(texts)

    @property
    def result(self) -> str:
        """The whole answer that an artifact has by its name; empty without one."""
        for name in _RESULT_NAMES:
            result = "\n\n".join(text for text in self._results[name].values() if text.strip())
            if result:
                return result
        return ""

    @property
    def partial_result(self) -> str | None:
        return self.result or truncate_text("\n\n".join(self.texts)) or None

    def _move_narration(self, key: str, text: str, *, append: bool) -> list[AnyEvent] | None:
        """Makes the message the artifact's when the status said this text before; None if it did not."""
        if not append:
            events = self._narration.move_to(key, text)
            if events is not None:
                return events
        if self._messages.rekey_latest(text, STATUS_PREFIX, key):
            return []
        return None

    def _write(self, key: str, id_base: str, text: str, *, append: bool, may_lag: bool) -> list[AnyEvent]:
        old_text = self._messages.text(key)
        if append:
            if not old_text:
                id_base += "+"  # it continues an artifact of an earlier turn, which had the plain id
            return self._messages.append(key, id_base, text)
        if may_lag and old_text.startswith(text):
            return []
        text_before = old_text.removesuffix(text)
        if text and text_before not in ("", old_text) and not is_continuation(text_before, text):
            return self._split_off(key, id_base, text_before, text)
        return self._messages.replace(key, id_base, text)

    def _split_off(self, key: str, id_base: str, text_before: str, text: str) -> list[AnyEvent]:
        """Makes the end of an artifact its whole text; what was streamed before it becomes narration.

        Some servers stream all that an agent writes into one artifact, and replace it by the answer alone."""
        narration_key = self._messages.new_id(f"{STATUS_PREFIX}{id_base}")
        self._messages.rekey(key, narration_key)
        return [
            *self._messages.replace(narration_key, id_base, text_before),
            *self._messages.end(narration_key, "narration"),
            *self._messages.append(key, id_base, text),
        ]

    def _store_result(self, artifact: Artifact, *, append: bool, may_lag: bool) -> None:
        key = _key(artifact)
        old_text = self._results[artifact.name].get(key, "")
        text = read_text(artifact.parts)
        if append:
            text = old_text + text
        if may_lag and old_text.startswith(text):
            return
        self._results[artifact.name][key] = truncate_text(text)

    def _store_data(self, key: str, parts: Iterable[Part], *, append: bool) -> None:
        if not append:
            self._data_texts.pop(key, None)
        for text in read_data(parts):
            size = sum(sum(map(len, texts)) for texts in self._data_texts.values())
            if size + len(text) <= MAX_TEXT_LENGTH:
                self._data_texts.setdefault(key, []).append(text)


def _key(artifact: Artifact) -> str:
    return f"{ARTIFACT_PREFIX}{artifact.artifact_id}"
