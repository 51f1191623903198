"""The arguments of a tool, read from its JSON schema: types, choices, bounds, and what kind of thing each one takes."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ai_platform_engineering.models.offline.entities import EntityKind
from ai_platform_engineering.models.offline.lexicon import word_set
from ai_platform_engineering.models.offline.words import plain_words, stem, stems

# By which words of an argument's name or description its kind is known; the first match decides.
_KINDS: tuple[tuple[EntityKind, str], ...] = (
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
_FORMATS: dict[str, EntityKind] = {
    "ipv4": "ip", "ipv6": "ip", "hostname": "host", "idn-hostname": "host", "uri": "url", "url": "url", "email": "email",
    "date": "date", "date-time": "date", "ipv4network": "cidr", "ipv6network": "cidr", "ipvanyaddress": "ip", "ipvanynetwork": "cidr",
}  # fmt: skip
_FREE_TEXT = word_set(
    "query q question text search keyword keywords prompt message phrase term terms body content comment"
)
_LANGUAGES = word_set("jql sql promql spl cql kql logql cypher graphql filter expression")
# Words that name an argument but no thing: `application_name` is the name of an application.
_VAGUE_NAMES = word_set("name target value first second left right source destination")
_EMPTY_NAMES = word_set("name id identifier value key title slug uid uuid number")


@dataclass(frozen=True)
class ArgumentSlot:
    """An argument of a tool."""

    name: str
    type: str
    required: bool
    description: str = ""
    options: tuple[Any, ...] = ()  # the values that the schema allows
    default: Any = None
    kinds: tuple[EntityKind, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    item: str = ""  # the type of a list's items
    also: tuple[str, ...] = ()  # other types that the schema takes instead

    @cached_property
    def words(self) -> tuple[str, ...]:
        return tuple(stem(word) for word in plain_words(self.name))

    @cached_property
    def is_free_text(self) -> bool:
        return self.type == "string" and bool(_FREE_TEXT & set(plain_words(self.name)))

    @cached_property
    def is_language(self) -> bool:
        """Takes a query in a language of its own, which words of a question are not."""
        return bool(_LANGUAGES & set(plain_words(self.name)))

    @cached_property
    def things(self) -> tuple[str, ...]:
        """What the argument names: `application` for `application_name`."""
        return tuple(word for word in self.words if word not in _EMPTY_NAMES)


def read_slots(schema: Mapping[str, Any], about: str) -> Iterator[ArgumentSlot]:
    required = schema.get("required") or ()
    for name, raw in list((schema.get("properties") or {}).items())[:60]:
        if isinstance(raw, Mapping):
            also = tuple(_type(one) for one in raw.get("anyOf") or () if isinstance(one, Mapping))[1:]
            yield _slot(str(name), _resolved(raw, schema), name in required, about, also)


def _slot(
    name: str, spec: Mapping[str, Any], required: bool, about: str, also: tuple[str, ...]
) -> ArgumentSlot:
    kind = _type(spec)
    description = str(spec.get("description") or "")[:1000]
    items = spec.get("items")
    inner: Mapping[str, Any] = items if kind == "array" and isinstance(items, Mapping) else {}
    options = [spec["const"]] if "const" in spec else spec.get("enum") or inner.get("enum") or ()
    named = spec if kind != "array" else {**inner, "format": inner.get("format")}
    return ArgumentSlot(
        name=name,
        type=kind,
        required=required and "default" not in spec,
        description=description,
        options=tuple(options)[:200],
        default=spec.get("default"),
        kinds=_kinds(
            name,
            description,
            str(named.get("format") or ""),
            about,
            _type(inner) if kind == "array" else kind,
        ),
        minimum=_bound(spec, "minimum", "exclusiveMinimum", 1),
        maximum=_bound(spec, "maximum", "exclusiveMaximum", -1),
        item=_type(inner) if kind == "array" else "",
        also=also,
    )


def _resolved(spec: Mapping[str, Any], root: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema of an argument without references and alternatives: the first that is not null."""
    for _ in range(8):
        if isinstance(ref := spec.get("$ref"), str) and ref.startswith("#/"):
            target: Any = root
            for key in ref[2:].split("/"):
                target = target.get(key) if isinstance(target, Mapping) else None
            spec = {
                **(target if isinstance(target, Mapping) else {}),
                **{key: value for key, value in spec.items() if key != "$ref"},
            }
            continue
        choices = spec.get("anyOf") or spec.get("oneOf") or spec.get("allOf")
        real = [one for one in choices or () if isinstance(one, Mapping) and one.get("type") != "null"]
        if not real:
            break
        spec = {
            **real[0],
            **{key: value for key, value in spec.items() if key not in ("anyOf", "oneOf", "allOf")},
        }
    return spec


def _type(spec: Mapping[str, Any]) -> str:
    kind = spec.get("type")
    if isinstance(kind, list):
        kind = next((one for one in kind if one != "null"), None)
    return str(kind or ("object" if "properties" in spec else "string"))


def _bound(spec: Mapping[str, Any], inclusive: str, exclusive: str, step: int) -> float | None:
    if isinstance(value := spec.get(inclusive), int | float):
        return value
    value = spec.get(exclusive)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value + step
    return None


def _kinds(name: str, description: str, form: str, about: str, kind: str) -> tuple[EntityKind, ...]:
    """What things an argument takes, the likeliest first: by format, then by name, then by what is said of it and of the tool."""
    if kind in ("integer", "number"):
        words = plain_words(name)
        if "port" in words:
            return ("port",)
        if "prefix" in words:
            return ("prefix",)
        return ("number",)
    if kind != "string":
        return ()
    if form in _FORMATS:
        return (_FORMATS[form],)
    by_name = _named(stems(name))
    by_text = _named(stems(description))
    if found := by_name[:1] or by_text[:1]:
        # "A host name or an IP address" takes both.
        return tuple(
            dict.fromkeys([*found, *(one for one in by_text if {one, found[0]} <= {"host", "ip", "url"})])
        )
    vague = len(name) <= 2 or set(plain_words(name)) <= _VAGUE_NAMES
    if vague:
        return tuple(_named(stems(about))[:1])
    return ()


def _named(words: Iterable[str]) -> list[EntityKind]:
    present = set(words)
    return list(
        dict.fromkeys(kind for kind, names in _KINDS if present & {stem(name) for name in names.split()})
    )
