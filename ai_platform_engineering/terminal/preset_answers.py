"""Values from the command line that answer the forms of a run; approvals are never answered with them."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pydantic import JsonValue

from ai_platform_engineering.core.events import Form
from ai_platform_engineering.core.forms import check_form
from ai_platform_engineering.core.sentences import begin_sentence
from ai_platform_engineering.core.transcript import PendingInput


class PresetAnswers:
    """A value is used for every field of its name.

    The same fields are never answered twice with the same values: a form that comes again
    was not satisfied by them.
    """

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values
        self._sent_keys = set[str]()
        self._used_names = set[str]()

    def take_answers(self, requests: Iterable[PendingInput]) -> dict[str, dict[str, JsonValue]]:
        """The answers to forms that the values fill in, by request id; they count as sent."""
        answers: dict[str, dict[str, JsonValue]] = {}
        for request in requests:
            if not isinstance(request.asked, Form):
                continue
            form_values = self._values_for(request.asked)
            if not form_values:
                continue
            valid_values, problems = check_form(request.asked, form_values)
            key = _form_key(request.asked, form_values)
            if not problems and key not in self._sent_keys:
                self._sent_keys.add(key)
                self._used_names |= form_values.keys()
                answers[request.request_id] = valid_values
        return answers

    def describe_problems(self, requests: Iterable[PendingInput]) -> list[str]:
        """Why forms are still open, field by field, and which values no form asked for."""
        sentences: list[str] = []
        if self._values:
            for request in requests:
                if isinstance(request.asked, Form):
                    sentences.extend(self._describe_form_problems(request.asked))
        unused_names = [name for name in self._values if name not in self._used_names]
        if unused_names:
            sentences.append(f"No form asked for: {', '.join(unused_names)}.")
        return sentences

    def _describe_form_problems(self, form: Form) -> Iterator[str]:
        form_values = self._values_for(form)
        self._used_names |= form_values.keys()
        problems = check_form(form, form_values)[1]
        for name, sentence in problems.items():
            yield f"{name}: {sentence}"
        if not problems and _form_key(form, form_values) in self._sent_keys:
            subject = begin_sentence(form.describe())
            yield f"{subject} is asked again: the values were not accepted."

    def _values_for(self, form: Form) -> dict[str, Any]:
        names = [field.field_name for field in form.fields]
        return {name: self._values[name] for name in names if name in self._values}


def _form_key(form: Form, values: Mapping[str, Any]) -> str:
    names = [field.field_name for field in form.fields]
    return json.dumps([names, dict(values)], sort_keys=True)
