"""Arguments of a tool from the words of a request: filled, or reported as missing.

Several values of an argument make several calls.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from ai_platform_engineering.models.offline.argument_slots import ArgumentSlot
from ai_platform_engineering.models.offline.bound_tools import RoutableTool
from ai_platform_engineering.models.offline.entities import Entity, EntityKind, read_entities
from ai_platform_engineering.models.offline.entity_fit import rate_entity
from ai_platform_engineering.models.offline.filled_arguments import (
    FilledArguments,
    SlotValues,
    finish_arguments,
)
from ai_platform_engineering.models.offline.question_parser import ParsedRequest
from ai_platform_engineering.models.offline.word_matching import is_generic, split_words, stem_words
from ai_platform_engineering.models.offline.word_values import (
    ArgumentValue,
    extract_search_text,
    find_choices,
    find_name,
    find_service_port,
    find_short_host,
    is_near_slot_name,
    read_flag,
)

# An entity of an earlier text speaks for a tool only when a pronoun points to it.
_CONTEXT_CONFIDENCE = 0.1
_PRONOUN_CONFIDENCE = 0.5
_REACHING_WORDS = frozenset({"ping", "reach", "reachable", "connect"})
_USUAL_PORTS = "22,80,443"
_OWNER_NAMES = frozenset({"owner", "org", "organization", "organisation"})


def fill_arguments(tool: RoutableTool, request: ParsedRequest) -> FilledArguments:
    """What `tool` would be called with for this request."""
    filler = _ArgumentFiller(tool, request)
    filler.fill_from_assignments()
    filler.fill_from_entities()
    filler.fill_from_words()
    if request.lacks_subject:
        filler.fill_from_context()
    filler.fill_from_guesses()
    return finish_arguments(tool, request.entities, filler.slot_values)


@dataclass(slots=True)
class _ArgumentFiller:
    tool: RoutableTool
    request: ParsedRequest
    slot_values: SlotValues = field(default_factory=SlotValues)

    @property
    def text(self) -> str:
        return self.request.text

    @property
    def values(self) -> dict[str, list[ArgumentValue]]:
        return self.slot_values.by_slot

    @property
    def used_entities(self) -> set[Entity]:
        return self.slot_values.used_entities

    def open_slots(self) -> list[ArgumentSlot]:
        """The arguments without a value, the required ones first."""
        slots = [slot for slot in self.tool.slots if slot.name not in self.values]
        return sorted(slots, key=lambda slot: not slot.required)

    def open_required_slots(self) -> list[ArgumentSlot]:
        return [slot for slot in self.open_slots() if slot.required]

    def set_values(self, slot: ArgumentSlot, *values: ArgumentValue) -> None:
        self.values[slot.name] = list(values)

    # --- `name=value` -----------------------------------------------------------------------------

    def fill_from_assignments(self) -> None:
        by_name = {_normalize_name(assignment.name): assignment for assignment in self.request.assignments}
        for slot in self.tool.slots:
            assignment = by_name.get(_normalize_name(slot.name))
            if assignment:
                self.set_values(slot, ArgumentValue(assignment.value, assignment.start, 1.0))

    # --- entities: addresses, numbers, keys -------------------------------------------------------

    def fill_from_entities(self) -> None:
        self._fill_optional_by_cue()
        for slot in self.open_slots():
            if slot.name in self.values or not slot.kinds or slot.is_free_text:
                continue
            similar_slots = self._find_similar_slots(slot)
            if slot.required and len(similar_slots) > 1:
                self._fill_in_order(similar_slots)
                continue
            entities = self._find_fitting(slot, self.request.entities)
            if entities:
                self._use_entities(slot, entities)

    def _fill_optional_by_cue(self) -> None:
        """Fills optional arguments that are named before the entity: "resolve a.example server 10.0.0.53"."""
        for slot in self.open_slots():
            if slot.required or not slot.kinds or slot.kinds == ("port",):
                continue
            for entity in self.request.entities:
                words_before = stem_words(self.text[max(0, entity.start - 24) : entity.start])[-2:]
                if rate_entity(slot, entity) and set(slot.words) & set(words_before):
                    self._use_entities(slot, [entity])
                    break

    def _find_similar_slots(self, slot: ArgumentSlot) -> list[ArgumentSlot]:
        """The required slots that take the same kind of entity, this one among them."""
        similar_slots = list[ArgumentSlot]()
        for other in self.open_required_slots():
            if other.kinds[:1] == slot.kinds[:1] and other.type == "string":
                similar_slots.append(other)
        return similar_slots

    def _fill_in_order(self, slots: Sequence[ArgumentSlot]) -> None:
        entities = self._find_fitting(slots[0], self.request.entities)
        for slot, entity in zip(slots, entities, strict=False):
            self._use_entities(slot, [entity])

    def _find_fitting(self, slot: ArgumentSlot, entities: Sequence[Entity]) -> list[Entity]:
        """The unused entities that serve the slot."""
        rated = list[tuple[Entity, float]]()
        for entity in entities:
            fit = rate_entity(slot, entity)
            if fit and entity not in self.used_entities:
                rated.append((entity, fit))
        best_fit = max((fit for _, fit in rated), default=0.0)
        fitting = list[Entity]()
        for entity, fit in rated:
            # A bare number is a port only where no port is named.
            if fit == best_fit or entity.kind not in ("number", "quoted"):
                fitting.append(entity)
        # The host within a URL counts only where no other host is named.
        explicit = [entity for entity in fitting if not entity.derived]
        if explicit and slot.kinds != ("host",):
            return explicit
        return fitting

    def _use_entities(self, slot: ArgumentSlot, entities: Sequence[Entity]) -> None:
        takes_several = slot.required or slot.type == "array" or slot.kinds == ("port",)
        if not takes_several:
            entities = entities[:1]
        values = list[ArgumentValue]()
        url_starts = set[int]()
        for entity in entities:
            value = self._entity_value(slot, entity)
            values.append(ArgumentValue(value, entity.start, rate_entity(slot, entity)))
            if _is_part_of_url(entity):
                url_starts.add(entity.start)
        self.set_values(slot, *values)
        self.used_entities.update(entities)
        # A URL and its host are one entity.
        for entity in self.request.entities:
            if entity.start in url_starts and _is_part_of_url(entity):
                self.used_entities.add(entity)

    def _entity_value(self, slot: ArgumentSlot, entity: Entity) -> str:
        if slot.kinds[:1] == ("url",) and "://" not in entity.value:
            return self._build_url(entity)
        return entity.value

    def _build_url(self, entity: Entity) -> str:
        """The URL of a site that was only named; `https` unless something says otherwise."""
        port = ""
        for other in self.request.entities:
            if other.kind == "port" and other.start == entity.start:
                port = port or other.value
                self.used_entities.add(other)
        host = entity.value
        if entity.kind == "ip" and ":" in host:
            host = f"[{host}]"
        scheme = "http" if self._is_plain_http(entity, port) else "https"
        if port:
            return f"{scheme}://{host}:{port}"
        return f"{scheme}://{host}"

    def _is_plain_http(self, entity: Entity, port: str) -> bool:
        if "http" in split_words(self.text) or port not in ("", "443", "8443"):
            return True
        host = entity.value.partition("/")[0].partition(":")[0]
        is_local = host == "localhost" or entity.kind == "ip"
        return is_local and not port

    # --- words ------------------------------------------------------------------------------------

    def fill_from_words(self) -> None:
        for slot in self.open_slots():
            if slot.type == "boolean":
                flag = read_flag(slot, self.text)
                if flag is not None:
                    self.set_values(slot, ArgumentValue(flag, 0, 0.8))
            elif slot.type in ("integer", "number"):
                self._fill_number(slot)
            elif slot.type in ("string", "array"):
                self._fill_choices(slot)
        self._split_owner_from_repository()

    def _fill_choices(self, slot: ArgumentSlot) -> None:
        choices = find_choices(slot, self.text)
        if not slot.required and not slot.options:
            choices = choices[:1]
        if choices:
            self.set_values(slot, *choices)

    def _fill_number(self, slot: ArgumentSlot) -> None:
        numbers = self._unused_entities("number")
        for entity in numbers:
            if is_near_slot_name(slot, entity.start, self.text):
                self._use_number(slot, entity, 1.0)
                return
        if slot.required and len(numbers) == 1 and slot.kinds != ("port",):
            self._use_number(slot, numbers[0], 0.6)

    def _use_number(self, slot: ArgumentSlot, entity: Entity, confidence: float) -> None:
        self.set_values(slot, ArgumentValue(entity.value, entity.start, confidence))
        self.used_entities.add(entity)

    def _unused_entities(self, kind: EntityKind) -> list[Entity]:
        entities = [entity for entity in self.request.entities if entity.kind == kind]
        return [entity for entity in entities if entity not in self.used_entities]

    def _split_owner_from_repository(self) -> None:
        """Splits `owner/name` for a tool that wants the two apart."""
        owner_slot = next((slot for slot in self.open_slots() if slot.name.lower() in _OWNER_NAMES), None)
        if owner_slot is None:
            return
        for slot in self.tool.slots:
            if slot.kinds != ("slug",):
                continue
            for value in self.values.get(slot.name, ()):
                owner, slash, repository = str(value.value).partition("/")
                if slash:
                    self.set_values(owner_slot, ArgumentValue(owner, value.start, 1.0))
                    self.set_values(slot, ArgumentValue(repository, value.start, 1.0))

    # --- earlier texts ----------------------------------------------------------------------------

    def fill_from_context(self) -> None:
        """Fills in the subject that a request refers to, from the nearest earlier text that has one."""
        borrowed = set[tuple[int, Entity]]()
        for slot in self.open_required_slots():
            for index, text in enumerate(self.request.context):
                entity = self._find_in_context(slot, index, text, borrowed)
                if entity is not None:
                    borrowed.add((index, entity))
                    confidence = _PRONOUN_CONFIDENCE if self.request.has_pronoun else _CONTEXT_CONFIDENCE
                    self.set_values(slot, ArgumentValue(self._entity_value(slot, entity), -1, confidence))
                    break
                choices = list[ArgumentValue]()
                if slot.type == "string" and not slot.kinds:
                    choices = find_choices(slot, text)
                if choices:
                    self.set_values(slot, choices[0])
                    break

    def _find_in_context(
        self, slot: ArgumentSlot, index: int, text: str, borrowed: set[tuple[int, Entity]]
    ) -> Entity | None:
        if not slot.kinds:
            return None
        entities, _ = read_entities(text)
        for entity in self._find_fitting(slot, entities):
            if (index, entity) not in borrowed:
                return entity
        return None

    # --- guesses ----------------------------------------------------------------------------------

    def fill_from_guesses(self) -> None:
        for slot in self.open_slots():
            if slot.options or slot.type not in ("string", "integer", "array"):
                continue
            value = self._guess_value(slot)
            if value is not None:
                self.set_values(slot, value)

    def _guess_value(self, slot: ArgumentSlot) -> ArgumentValue | None:
        likeliest_kind = slot.kinds[0] if slot.kinds else None
        if slot.kinds == ("port",):
            return self._guess_port(slot) if slot.required else None
        if likeliest_kind in ("host", "url"):
            return self._guess_host(slot) if slot.required else None
        if slot.type not in ("string", "array") or likeliest_kind not in (None, "key", "slug"):
            return None
        quoted_entities = self._unused_entities("quoted")
        if quoted_entities and (slot.required or slot.is_free_text):
            quoted = quoted_entities[0]
            self.used_entities.add(quoted)
            return ArgumentValue(quoted.value, quoted.start, 0.9)
        if slot.is_query_language:
            return None
        if slot.is_free_text:
            return ArgumentValue(extract_search_text(self.text), 0, 0.7) if slot.required else None
        return self._guess_name(slot)

    def _guess_port(self, slot: ArgumentSlot) -> ArgumentValue | None:
        """The port of a named service; for "ping" and "reachable" the usual ones."""
        port = find_service_port(self.text)
        if port is None and not _REACHING_WORDS.isdisjoint(split_words(self.text)):
            return ArgumentValue(_USUAL_PORTS if "string" in slot.alternative_types else "443", 0, 0.6)
        return port

    def _guess_name(self, slot: ArgumentSlot) -> ArgumentValue | None:
        if not slot.required and not slot.subject_words:
            return None
        subject_words = slot.subject_words
        if not subject_words:
            name_words = self.tool.profile[0].words
            subject_words = tuple(word for word in name_words if not is_generic(word))
        used_starts = {entity.start for entity in self.request.entities}
        for values in self.values.values():
            used_starts.update(value.start for value in values)
        slot_words = set[str]()
        for other in self.tool.slots:
            slot_words.update(other.words)
        return find_name(slot, subject_words, self.text, used_starts, slot_words)

    def _guess_host(self, slot: ArgumentSlot) -> ArgumentValue | None:
        texts = [self.text]
        if self.request.lacks_subject:
            texts.extend(self.request.context)
        host = next(filter(None, map(find_short_host, texts)), None)
        if host is None or slot.kinds[:1] == ("host",):
            return host
        url = self._build_url(Entity("host", host.value, host.start, host.start))
        return ArgumentValue(url, host.start, 0.5)


def _is_part_of_url(entity: Entity) -> bool:
    return entity.kind == "url" or entity.derived


def _normalize_name(name: str) -> str:
    return name.lower().replace("-", "_")
