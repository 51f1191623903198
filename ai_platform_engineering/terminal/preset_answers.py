"""Values that were given before anybody asked for them: forms that come up are answered with these, approvals never."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import JsonValue

from ai_platform_engineering.core.events import Form
from ai_platform_engineering.core.forms import check_form
from ai_platform_engineering.core.transcript import PendingInput


class PresetAnswers:
    """A value is used for every field of its name. The same fields are never answered twice with the same values: a form that comes
    again with them says that they will not do."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values
        self._sent = set[str]()
        self._used = set[str]()

    def take_answers(self, requests: Iterable[PendingInput]) -> dict[str, dict[str, JsonValue]]:
        """The forms that the values answer, by request id."""
        found: dict[str, dict[str, JsonValue]] = {}
        for request in requests:
            if not isinstance(request.asked, Form) or not (mine := self._of(request.asked)):
                continue
            good, wrong = check_form(request.asked, mine)
            if not wrong and (key := _key(request.asked, mine)) not in self._sent:
                self._sent.add(key)
                self._used |= mine.keys()
                found[request.request_id] = good
        return found

    def describe_problems(self, requests: Iterable[PendingInput]) -> list[str]:
        """Why forms are still open, field by field, and what was given for nothing."""
        said: list[str] = []
        for form in [
            request.asked for request in requests if isinstance(request.asked, Form) and self._values
        ]:
            mine = self._of(form)
            self._used |= mine.keys()
            wrong = check_form(form, mine)[1]
            said += [f"{name}: {sentence}" for name, sentence in wrong.items()]
            if not wrong and _key(form, mine) in self._sent:
                said.append(f"{form.describe()} is asked again: the values that were given did not do.")
        unused = [name for name in self._values if name not in self._used]
        return [*said, *([f"Nothing asked for: {', '.join(unused)}."] if unused else [])]

    def _of(self, form: Form) -> dict[str, Any]:
        return {
            field.field_name: self._values[field.field_name]
            for field in form.fields
            if field.field_name in self._values
        }


def _key(form: Form, values: Mapping[str, Any]) -> str:
    return json.dumps([[field.field_name for field in form.fields], dict(values)], sort_keys=True)
