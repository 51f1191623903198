"""Reports of agents to the supervisor: a list of labelled facts, written and read back."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

_FACT = re.compile(r"^- (?P<label>[a-z ]+): (?P<value>.+)$", re.MULTILINE)
_NOT_SEEN = "not seen"
_MAX_VALUE_CHARS = 500


@dataclass(slots=True)
class Report:
    """What an agent found out; facts keep their order, and a label may have several values."""

    facts: list[tuple[str, str]] = field(default_factory=list)

    def add(self, label: str, value: object) -> None:
        """Adds a fact; an empty value is none."""
        text = " ".join(str(value if value is not None else "").split())
        if text:
            self.facts.append((label, text[:_MAX_VALUE_CHARS]))

    def add_missing(self, what: str, reason: str) -> None:
        """Adds what could not be seen."""
        self.add(_NOT_SEEN, f"{what} ({reason or 'no result'})")

    def get(self, label: str) -> str:
        """The first value of a label; empty when there is none."""
        return next(iter(self.get_all(label)), "")

    def get_all(self, label: str) -> list[str]:
        return [value for name, value in self.facts if name == label]

    @property
    def missing(self) -> list[str]:
        return self.get_all(_NOT_SEEN)

    def render(self, heading: str) -> str:
        lines = [f"- {label}: {value}" for label, value in self.facts]
        return "\n".join([heading, "", *lines])

    @classmethod
    def parse(cls, text: str) -> "Report":
        return cls([(match["label"], match["value"]) for match in _FACT.finditer(text)])

    @classmethod
    def of_missing(cls, whats: Iterable[str]) -> "Report":
        return cls([(_NOT_SEEN, what) for what in whats])
