"""Argument slots of a tool, read from its JSON schema: types, choices, bounds, and kinds of entity."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ai_platform_engineering.models.offline.entities import EntityKind
from ai_platform_engineering.models.offline.lexicon import word_set
from ai_platform_engineering.models.offline.word_matching import split_words, stem, stem_words

# The words of an argument's name or description that tell the kind of its entities; the first match decides.
_KIND_WORDS: tuple[tuple[EntityKind, str], ...] = (
    ("email", "email mail"),
    ("url", "url uri link href website endpoint webpage"),
    ("cidr", "cidr subnet network netmask supernet"),
    ("ip", "ip ipv4 ipv6 contain member"),
    ("host", "host hostname domain fqdn server dns"),
    ("ip", "address addr"),
    ("key", "issue ticket key"),
    ("slug", "repo repository"),
    ("date", "date datetime timestamp since until"),
)
_KIND_STEMS = tuple((kind, frozenset(map(stem, words.split()))) for kind, words in _KIND_WORDS)
_KIND_BY_FORMAT: dict[str, EntityKind] = {
    "ipv4": "ip",
    "ipv6": "ip",
    "hostname": "host",
    "idn-hostname": "host",
    "uri": "url",
    "url": "url",
    "email": "email",
    "date": "date",
    "date-time": "date",
    "ipv4network": "cidr",
    "ipv6network": "cidr",
    "ipvanyaddress": "ip",
    "ipvanynetwork": "cidr",
}
_ADDRESS_KINDS = frozenset({"host", "ip", "url"})
_FREE_TEXT_NAMES = word_set(
    "query q question text search keyword keywords prompt message phrase term terms body content comment"
)
_QUERY_LANGUAGES = word_set("jql sql promql spl cql kql logql cypher graphql filter expression")
# Names that say nothing about the kind of entity.
_VAGUE_NAMES = word_set("name target value first second left right source destination")
# Words that name no subject: `application_name` is the name of an application.
_NAME_SUFFIXES = word_set("name id identifier value key title slug uid uuid number")
_ALTERNATIVES = ("anyOf", "oneOf", "allOf")
_MAX_SLOTS = 60
_MAX_OPTIONS = 200
_MAX_DESCRIPTION = 1000
_MAX_REFERENCES = 8


@dataclass(frozen=True)
class ArgumentSlot:
    """An argument of a tool, to be filled with a value."""

    name: str
    type: str
    required: bool
    description: str = ""
    options: tuple[Any, ...] = ()  # the values that the schema allows
    default: Any = None
    kinds: tuple[EntityKind, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    item_type: str = ""  # the type of a list's items
    alternative_types: tuple[str, ...] = ()  # other types that the schema takes instead

    @cached_property
    def words(self) -> tuple[str, ...]:
        return tuple(map(stem, split_words(self.name)))

    @cached_property
    def is_free_text(self) -> bool:
        return self.type == "string" and bool(_FREE_TEXT_NAMES & set(split_words(self.name)))

    @cached_property
    def is_query_language(self) -> bool:
        """Whether it takes a query in a language of its own, which the words of a question are not."""
        return bool(_QUERY_LANGUAGES & set(split_words(self.name)))

    @cached_property
    def subject_words(self) -> tuple[str, ...]:
        """What the argument names: `application` for `application_name`."""
        return tuple(word for word in self.words if word not in _NAME_SUFFIXES)


def read_slots(schema: Mapping[str, Any], tool_text: str) -> Iterator[ArgumentSlot]:
    """The slots of a tool's JSON schema; `tool_text` is the tool's name and description."""
    required_names = schema.get("required") or ()
    properties = schema.get("properties") or {}
    for name, property_schema in list(properties.items())[:_MAX_SLOTS]:
        if isinstance(property_schema, Mapping):
            yield _read_slot(
                str(name),
                _resolve_schema(property_schema, schema),
                required=name in required_names,
                tool_text=tool_text,
                alternative_types=_read_alternative_types(property_schema),
            )


def _read_alternative_types(schema: Mapping[str, Any]) -> tuple[str, ...]:
    """The types in `anyOf` after the first one."""
    choices = filter(_is_mapping, schema.get("anyOf") or ())
    return tuple(map(_read_type, choices))[1:]


def _is_mapping(value: Any) -> bool:
    return isinstance(value, Mapping)


def _read_slot(
    name: str,
    schema: Mapping[str, Any],
    *,
    required: bool,
    tool_text: str,
    alternative_types: tuple[str, ...],
) -> ArgumentSlot:
    slot_type = _read_type(schema)
    item_schema: Mapping[str, Any] = {}
    item_type = ""
    value_schema = schema  # of the value, or of each item of a list
    value_type = slot_type
    if slot_type == "array":
        items = schema.get("items")
        if isinstance(items, Mapping):
            item_schema = items
        item_type = _read_type(item_schema)
        value_schema = item_schema
        value_type = item_type
    options = schema.get("enum") or item_schema.get("enum") or ()
    if "const" in schema:
        options = [schema["const"]]
    description = str(schema.get("description") or "")[:_MAX_DESCRIPTION]
    value_format = str(value_schema.get("format") or "")
    return ArgumentSlot(
        name=name,
        type=slot_type,
        required=required and "default" not in schema,
        description=description,
        options=tuple(options)[:_MAX_OPTIONS],
        default=schema.get("default"),
        kinds=_find_kinds(name, description, value_format, tool_text, value_type),
        minimum=_read_bound(schema, "minimum", "exclusiveMinimum", 1),
        maximum=_read_bound(schema, "maximum", "exclusiveMaximum", -1),
        item_type=item_type,
        alternative_types=alternative_types,
    )


def _resolve_schema(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema of an argument without references and alternatives: the first that is not null."""
    for _ in range(_MAX_REFERENCES):
        reference = schema.get("$ref")
        if isinstance(reference, str) and reference.startswith("#/"):
            schema = {**_follow_reference(reference, root), **_without_keys(schema, ("$ref",))}
            continue
        alternative = _find_alternative(schema)
        if alternative is None:
            break
        schema = {**alternative, **_without_keys(schema, _ALTERNATIVES)}
    return schema


def _follow_reference(reference: str, root: Mapping[str, Any]) -> Mapping[str, Any]:
    target: Any = root
    for key in reference[2:].split("/"):
        if not isinstance(target, Mapping):
            return {}
        target = target.get(key)
    if isinstance(target, Mapping):
        return target
    return {}


def _find_alternative(schema: Mapping[str, Any]) -> Mapping[str, Any] | None:
    choices = schema.get("anyOf") or schema.get("oneOf") or schema.get("allOf") or ()
    for choice in choices:
        if isinstance(choice, Mapping) and choice.get("type") != "null":
            return choice
    return None


def _without_keys(schema: Mapping[str, Any], keys: Iterable[str]) -> dict[str, Any]:
    remaining = dict(schema)
    for key in keys:
        remaining.pop(key, None)
    return remaining


def _read_type(schema: Mapping[str, Any]) -> str:
    schema_type = schema.get("type")
    if isinstance(schema_type, list):
        schema_type = next((name for name in schema_type if name != "null"), None)
    if schema_type:
        return str(schema_type)
    if "properties" in schema:
        return "object"
    return "string"


def _read_bound(schema: Mapping[str, Any], inclusive: str, exclusive: str, step: int) -> float | None:
    bound = schema.get(inclusive)
    if isinstance(bound, int | float):
        return bound
    bound = schema.get(exclusive)
    if isinstance(bound, int | float) and not isinstance(bound, bool):
        return bound + step
    return None


def _find_kinds(
    name: str, description: str, value_format: str, tool_text: str, value_type: str
) -> tuple[EntityKind, ...]:
    """The kinds of entity that an argument takes, the likeliest first.

    The format decides, then the name, then the description of the argument, then that of the tool.
    """
    if value_type in ("integer", "number"):
        return (_find_number_kind(name),)
    if value_type != "string":
        return ()
    if value_format in _KIND_BY_FORMAT:
        return (_KIND_BY_FORMAT[value_format],)
    kinds_by_name = _match_kinds(stem_words(name))
    kinds_by_description = _match_kinds(stem_words(description))
    likeliest = kinds_by_name[:1] or kinds_by_description[:1]
    if likeliest:
        kinds = list(likeliest)
        for kind in kinds_by_description:
            # "A host name or an IP address" takes both.
            if kind not in kinds and {kind, likeliest[0]} <= _ADDRESS_KINDS:
                kinds.append(kind)
        return tuple(kinds)
    is_vague = len(name) <= 2 or set(split_words(name)) <= _VAGUE_NAMES
    if is_vague:
        return tuple(_match_kinds(stem_words(tool_text))[:1])
    return ()


def _find_number_kind(name: str) -> EntityKind:
    words = split_words(name)
    if "port" in words:
        return "port"
    if "prefix" in words:
        return "prefix"
    return "number"


def _match_kinds(words: Iterable[str]) -> list[EntityKind]:
    present = set(words)
    kinds = list[EntityKind]()
    for kind, kind_stems in _KIND_STEMS:
        if present & kind_stems and kind not in kinds:
            kinds.append(kind)
    return kinds
