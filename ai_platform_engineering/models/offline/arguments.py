"""Arguments for a tool from the words of a request: filled, or named as missing; several values make several calls."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

from ai_platform_engineering.models.offline.calls import MOST_CALLS, rows, typed
from ai_platform_engineering.models.offline.entities import SALIENT, Entity, EntityKind, is_label, read
from ai_platform_engineering.models.offline.questions import ParsedRequest
from ai_platform_engineering.models.offline.schemas import ArgumentSlot
from ai_platform_engineering.models.offline.tools import RoutableTool
from ai_platform_engineering.models.offline.values import (
    ArgumentValue,
    chosen,
    is_beside,
    named,
    searched,
    service_port,
    short_host,
    yes_or_no,
)
from ai_platform_engineering.models.offline.words import is_generic, plain_words, stems

# How well a thing of one kind serves an argument of another.
_SERVES: Mapping[EntityKind, Mapping[EntityKind, float]] = {
    "host": {"host": 1.0, "ip": 0.8, "quoted": 0.6},
    "ip": {"ip": 1.0},
    "cidr": {"cidr": 1.0},
    "url": {"url": 1.0, "host": 0.8, "ip": 0.7},
    "port": {"port": 1.0, "ports": 0.9, "number": 0.4},
    "ports": {},
    "prefix": {"prefix": 1.0},
    "number": {},
    "email": {"email": 1.0},
    "key": {"key": 1.0},
    "slug": {"slug": 1.0},
    "date": {"date": 1.0},
}
_BORROWED, _MEANT = 0.1, 0.5  # a thing that stands elsewhere speaks for a tool only when a word points to it
_REACHED = frozenset({"host", "hostname", "server", "target"})
_OWNERS = frozenset({"owner", "org", "organization", "organisation"})


@dataclass(frozen=True, slots=True)
class FilledArguments:
    """The calls that a request makes of a tool, or what they lack."""

    rows: tuple[dict[str, Any], ...]
    missing: tuple[ArgumentSlot, ...] = ()
    problems: tuple[str, ...] = ()
    fit: float = 0.0  # how well what is in the request serves the tool
    left_out: int = 0  # calls beyond the most that are made


def fill(tool: RoutableTool, request: ParsedRequest) -> FilledArguments:
    """What `tool` would be called with for this request."""
    filling = _Filling(tool, request)
    filling.take_assignments()
    filling.take_things()
    filling.take_words()
    if request.lacks_subject:
        filling.borrow()
    filling.take_last_resorts()
    return filling.done()


@dataclass(slots=True)
class _Filling:
    tool: RoutableTool
    request: ParsedRequest
    values: dict[str, list[ArgumentValue]] = field(default_factory=dict)
    used: set[Entity] = field(default_factory=set)
    pairs: list[tuple[Entity, Entity]] = field(default_factory=list)  # for tools that compare two things

    @property
    def text(self) -> str:
        return self.request.text

    def open(self, *, required: bool | None = None) -> list[ArgumentSlot]:
        """The arguments without a value, the required ones first."""
        found = [
            slot
            for slot in self.tool.slots
            if slot.name not in self.values and required in (None, slot.required)
        ]
        return sorted(found, key=lambda slot: not slot.required)

    def put(self, slot: ArgumentSlot, *values: ArgumentValue) -> None:
        self.values[slot.name] = list(values)

    # --- what is written out -----------------------------------------------------------------------------------------

    def take_assignments(self) -> None:
        given = {one.name.lower().replace("-", "_"): one for one in self.request.assignments}
        for slot in self.tool.slots:
            if one := given.get(slot.name.lower().replace("-", "_")):
                self.put(slot, ArgumentValue(one.value, one.start, 1.0))

    # --- things: addresses, numbers, keys -----------------------------------------------------------------------------

    def take_things(self) -> None:
        self._take_by_cue()
        for slot in self.open():
            if slot.name in self.values or not slot.kinds or slot.is_free_text:
                continue
            twins = [
                one
                for one in self.open(required=True)
                if one.kinds[:1] == slot.kinds[:1] and one.type == "string"
            ]
            if slot.required and len(twins) > 1:
                self._take_in_order(twins)
            elif fits := self._fits(slot, self.request.entities):
                self._take(slot, fits)

    def _take_by_cue(self) -> None:
        """An optional argument whose name stands before the thing: "resolve a.example server 10.0.0.53"."""
        for slot in self.open(required=False):
            for entity in self.request.entities if slot.kinds else ():
                cue = stems(self.text[max(0, entity.start - 24) : entity.start])[-2:]
                if _served(slot, entity) and set(slot.words) & set(cue) and slot.kinds != ("port",):
                    self._take(slot, [entity])
                    break

    def _take_in_order(self, twins: Sequence[ArgumentSlot]) -> None:
        fits = self._fits(twins[0], self.request.entities)
        for slot, entity in zip(twins, fits, strict=False):
            self._take(slot, [entity])
        if len(twins) == 2 and len(fits) > 2:
            self.pairs = list(combinations(fits, 2))
            self.used |= set(fits)

    def _fits(self, slot: ArgumentSlot, entities: Sequence[Entity]) -> list[Entity]:
        fits = [entity for entity in entities if entity not in self.used and _served(slot, entity)]
        surest = max((_served(slot, entity) for entity in fits), default=0.0)
        # A bare number is a port only where no port is named; the host within a URL only where no other host is.
        fits = [
            entity
            for entity in fits
            if entity.kind not in ("number", "quoted") or surest == _served(slot, entity)
        ]
        named = [entity for entity in fits if not entity.derived]
        if named and slot.kinds != ("host",):
            return named
        return fits

    def _take(self, slot: ArgumentSlot, entities: Sequence[Entity]) -> None:
        most = entities if slot.required or slot.type == "array" or slot.kinds == ("port",) else entities[:1]
        self.put(
            slot,
            *(
                ArgumentValue(self._thing(slot, entity), entity.start, _served(slot, entity))
                for entity in most
            ),
        )
        self.used |= set(most)
        # A URL and its host are one thing.
        whole = {entity.start for entity in most if entity.kind == "url" or entity.derived}
        self.used |= {
            entity
            for entity in self.request.entities
            if entity.start in whole and (entity.derived or entity.kind == "url")
        }

    def _thing(self, slot: ArgumentSlot, entity: Entity) -> Any:
        if "url" in slot.kinds[:1] and "://" not in entity.value:
            return self._url(entity)
        return entity.value

    def _url(self, entity: Entity) -> str:
        """The address of a site that was only named; `https` unless something says otherwise."""
        port = next(
            (one.value for one in self.request.entities if one.kind == "port" and one.start == entity.start),
            "",
        )
        self.used |= {
            one for one in self.request.entities if one.kind == "port" and one.start == entity.start
        }
        local = entity.value.partition("/")[0].partition(":")[0] == "localhost" or entity.kind == "ip"
        plain = "http" in plain_words(self.text) or port not in ("", "443", "8443") or (local and not port)
        host = f"[{entity.value}]" if entity.kind == "ip" and ":" in entity.value else entity.value
        return f"{'http' if plain else 'https'}://{host}{f':{port}' if port else ''}"

    # --- words --------------------------------------------------------------------------------------------------------

    def take_words(self) -> None:
        for slot in self.open():
            if slot.type == "boolean":
                if (flag := yes_or_no(slot, self.text)) is not None:
                    self.put(slot, ArgumentValue(flag, 0, 0.8))
            elif slot.type in ("integer", "number"):
                self._take_number(slot)
            elif slot.type in ("string", "array") and (values := chosen(slot, self.text)):
                self.put(slot, *values if slot.required or slot.options else values[:1])
        self._take_owner()

    def _take_number(self, slot: ArgumentSlot) -> None:
        numbers = [
            entity for entity in self.request.entities if entity.kind == "number" and entity not in self.used
        ]
        beside = [entity for entity in numbers if is_beside(slot, entity.start, self.text)]
        found = beside or (numbers if slot.required and len(numbers) == 1 and slot.kinds != ("port",) else [])
        if found:
            self.put(slot, ArgumentValue(found[0].value, found[0].start, 1.0 if beside else 0.6))
            self.used.add(found[0])

    def _take_owner(self) -> None:
        """`owner/name` serves a tool that wants the two apart."""
        owner = next((slot for slot in self.open() if slot.name.lower() in _OWNERS), None)
        for slot in self.tool.slots if owner else ():
            for value in self.values.get(slot.name, ()):
                if owner and slot.kinds == ("slug",) and "/" in str(value.value):
                    left, _, right = str(value.value).partition("/")
                    self.put(owner, ArgumentValue(left, value.start, 1.0))
                    self.put(slot, ArgumentValue(right, value.start, 1.0))

    # --- what is elsewhere --------------------------------------------------------------------------------------------

    def borrow(self) -> None:
        """The subject that a request refers to: from the nearest text before it that has one."""
        sure = _MEANT if self.request.has_pronoun else _BORROWED
        borrowed = set[tuple[int, Entity]]()
        for slot in self.open(required=True):
            for at, text in enumerate(self.request.context):
                fits = (
                    [one for one in self._fits(slot, read(text)[0]) if (at, one) not in borrowed]
                    if slot.kinds
                    else []
                )
                if fits:
                    self.put(slot, ArgumentValue(self._thing(slot, fits[0]), -1, sure))
                    borrowed.add((at, fits[0]))
                    break
                if slot.type == "string" and not slot.kinds and (words := chosen(slot, text)):
                    self.put(slot, words[0])
                    break

    def take_last_resorts(self) -> None:
        for slot in self.open():
            if slot.options or slot.type not in ("string", "integer", "array"):
                continue
            value = self._last_resort(slot)
            if value is not None:
                self.put(slot, value)

    def _last_resort(self, slot: ArgumentSlot) -> ArgumentValue | None:
        if slot.kinds == ("port",):
            if slot.required:
                return service_port(self.text)
            return None
        if slot.kinds[:1] in (("host",), ("url",)):
            if slot.required:
                return self._short_host(slot)
            return None
        if slot.type not in ("string", "array") or slot.kinds[:1] not in ((), ("key",), ("slug",)):
            return None
        quoted = next(
            (
                entity
                for entity in self.request.entities
                if entity.kind == "quoted" and entity not in self.used
            ),
            None,
        )
        if quoted and (slot.required or slot.is_free_text):
            self.used.add(quoted)
            return ArgumentValue(quoted.value, quoted.start, 0.9)
        if slot.is_language:
            return None
        if slot.is_free_text:
            if slot.required:
                return ArgumentValue(searched(self.text), 0, 0.7)
            return None
        if not slot.required and not slot.things:
            return None
        things = slot.things or tuple(word for word in self.tool.profile[0].words if not is_generic(word))
        taken = {value.start for values in self.values.values() for value in values} | {
            entity.start for entity in self.request.entities
        }
        return named(slot, things, self.text, taken, {word for one in self.tool.slots for word in one.words})

    def _short_host(self, slot: ArgumentSlot) -> ArgumentValue | None:
        texts = [self.text, *(self.request.context if self.request.lacks_subject else ())]
        found = next((one for text in texts if (one := short_host(text))), None)
        if found is None or slot.kinds[:1] == ("host",):
            return found
        return ArgumentValue(
            self._url(Entity("host", found.value, found.start, found.start)), found.start, 0.5
        )

    # --- the calls ----------------------------------------------------------------------------------------------------

    def done(self) -> FilledArguments:
        problems = [problem for slot in self.tool.slots for problem in self._convert(slot)]
        missing = tuple(slot for slot in self.tool.required if slot.name not in self.values)
        if missing or problems:
            return FilledArguments((), missing, tuple(problems), self._fit(missing))
        calls = self._compared() if self.pairs else rows(self.tool.slots, self.values)
        unique = [call for index, call in enumerate(calls) if call not in calls[:index]]
        return FilledArguments(
            tuple(unique[:MOST_CALLS]), (), (), self._fit(missing), max(0, len(unique) - MOST_CALLS)
        )

    def _compared(self) -> list[dict[str, Any]]:
        first, second = [slot for slot in self.tool.required if slot.name in self.values][:2]
        common = rows(
            self.tool.slots,
            {name: values for name, values in self.values.items() if name not in (first.name, second.name)},
        )[0]
        return [{first.name: a.value, second.name: b.value, **common} for a, b in self.pairs]

    def _convert(self, slot: ArgumentSlot) -> list[str]:
        """Values in the argument's type; those that cannot be are said."""
        problems, kept = list[str](), list[ArgumentValue]()
        for value in self.values.get(slot.name, ()):
            try:
                kept.append(ArgumentValue(typed(slot, value.value), value.start, value.sure))
            except ValueError as error:
                problems.append(f"`{slot.name}` {error}")
        if slot.name in self.values:
            self.values[slot.name] = kept
            if kept and (slot.type == "array" or self._goes_together(slot, kept)):
                self.values[slot.name] = [
                    ArgumentValue([value.value for value in kept], kept[0].start, kept[0].sure)
                ]
        return problems

    def _goes_together(self, slot: ArgumentSlot, kept: Sequence[ArgumentValue]) -> bool:
        """Several values of one argument that also takes a list make one call, unless each belongs to a value of another."""
        alone = all(len(values) == 1 for name, values in self.values.items() if name != slot.name)
        return (
            len(kept) > 1
            and alone
            and "array" in slot.also
            and all(isinstance(value.value, int) for value in kept)
        )

    def _fit(self, missing: Sequence[ArgumentSlot]) -> float:
        sure = {
            name: max((value.sure for value in values), default=0.0) for name, values in self.values.items()
        }
        required = {slot.name for slot in self.tool.required}
        served = sum(value if name in required else 0.4 * value for name, value in sure.items())
        unused = {
            one.start
            for one in self.request.entities
            if one.kind in SALIENT and one not in self.used and not one.derived
        }
        return served - 1.2 * len(missing) - 0.6 * len(unused - {one.start for one in self.used})


def _served(slot: ArgumentSlot, entity: Entity) -> float:
    sure = max(
        (_SERVES[kind].get(entity.kind, 0.0) / (1 + 0.2 * rank) for rank, kind in enumerate(slot.kinds)),
        default=0.0,
    )
    if entity.kind == "ip" and slot.kinds == ("host",) and not _REACHED & set(slot.words):
        return sure * 0.5  # a DNS name is hardly an address
    if entity.kind == "quoted" and not is_label(entity.value):
        return 0.0
    if (entity.kind == "number" and not entity.value.isdigit()) or (
        entity.kind == "ports" and "string" not in slot.also
    ):
        return 0.0
    return sure * (0.8 if entity.derived else 1.0)
