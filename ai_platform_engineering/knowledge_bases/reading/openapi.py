"""OpenAPI and Swagger: one section for each operation, then the schemas."""

from collections.abc import Iterator
from typing import Any

from ai_platform_engineering.knowledge_bases.documents import ParsedDocument, Section
from ai_platform_engineering.knowledge_bases.reading.document_kind import DetectedDocument
from ai_platform_engineering.knowledge_bases.reading.json_yaml import load_json, load_yaml
from ai_platform_engineering.knowledge_bases.reading.section_builder import SectionBuilder

_METHODS = ("get", "put", "post", "delete", "options", "head", "patch", "trace", "query")
_MOST_PROPERTIES = 200
_DEEPEST_TYPE = 4


def parse(found: DetectedDocument) -> ParsedDocument:
    """Raises ValueError for what is no description of an interface, so that it is read as any other file."""
    values = load_json(found.text) if found.text.lstrip().startswith("{") else None
    api = _Api(values if values is not None else load_yaml(found.text))
    return ParsedDocument(api.title or found.name, api.read())


class _Api:
    def __init__(self, values: Any) -> None:
        self._values = _mapping(values)
        self._info = _mapping(self._values.get("info"))
        self._outline = SectionBuilder()

    @property
    def title(self) -> str:
        return _words(self._info.get("title"))

    def read(self) -> tuple[Section, ...]:
        operations = [*self._operations("paths"), *self._operations("webhooks")]
        if not operations and not self._schemas():
            raise ValueError("no operations and no schemas")
        self._outline.add_text("\n\n".join(filter(None, self._introduction())))
        for tag in dict.fromkeys(tag for tag, *_ in operations):
            self._outline.add_heading(1, tag)
            self._outline.add_text(self._tag_words(tag))
            for _, method, path, operation, shared in (found for found in operations if found[0] == tag):
                self._operation(method, path, operation, shared)
        for number, (name, schema) in enumerate(self._schemas().items()):
            if number == 0:
                self._outline.add_heading(1, "Schemas")
            self._outline.add_heading(2, str(name))
            self._outline.add_text(self._schema(str(name), _mapping(schema)), "list")
        return self._outline.build()

    def _introduction(self) -> Iterator[str]:
        version = _words(self._info.get("version"))
        yield f"{self.title}{', version ' + version if version else ''}"
        yield _words(self._info.get("description"))
        servers = [_words(_mapping(server).get("url")) for server in _list(self._values.get("servers"))]
        host = _words(self._values.get("host")) + _words(self._values.get("basePath"))
        if any(servers) or host:
            yield f"Servers: {', '.join(filter(None, (*servers, host)))}"
        kinds = _mapping(_mapping(self._values.get("components")).get("securitySchemes")) or _mapping(
            self._values.get("securityDefinitions")
        )
        if kinds:
            yield "Authentication: " + ", ".join(
                f"{name} ({_words(_mapping(kind).get('type'))})" for name, kind in kinds.items()
            )

    def _tag_words(self, tag: str) -> str:
        tags = map(_mapping, _list(self._values.get("tags")))
        return next(
            (_words(found.get("description")) for found in tags if _words(found.get("name")) == tag), ""
        )

    def _operations(self, where: str) -> Iterator[tuple[str, str, str, dict[str, Any], list[Any]]]:
        for path, item in _mapping(self._values.get(where)).items():
            item = self._resolved(item)
            for method in _METHODS:
                operation = item.get(method)
                if isinstance(operation, dict):
                    tags = _list(operation.get("tags"))
                    tag = _words(tags[0]) if tags else ""
                    yield (
                        tag or "Operations",
                        method.upper(),
                        str(path),
                        operation,
                        _list(item.get("parameters")),
                    )

    def _operation(self, method: str, path: str, operation: dict[str, Any], shared: list[Any]) -> None:
        summary = _words(operation.get("summary")).rstrip(".")
        self._outline.add_heading(2, f"{method} {path}{': ' + summary if summary else ''}")
        name = _words(operation.get("operationId"))
        known = (
            f"`{method} {path}`",
            f"operation `{name}`" if name else "",
            "deprecated" if _yes(operation.get("deprecated")) else "",
        )
        self._outline.add_text(", ".join(filter(None, known)))
        self._outline.add_text(_words(operation.get("description")))
        parameters = [
            self._resolved(parameter) for parameter in (*shared, *_list(operation.get("parameters")))
        ]
        self._part("Parameters", map(self._parameter, parameters))
        self._part("Request body", self._content(self._resolved(operation.get("requestBody"))))
        self._part(
            "Responses",
            (
                self._response(str(code), self._resolved(what))
                for code, what in _mapping(operation.get("responses")).items()
            ),
        )

    def _part(self, title: str, lines: Any) -> None:
        found = [f"- {line}" for line in lines if line]
        if found:
            self._outline.add_text(f"{title}:\n" + "\n".join(found), "list")

    def _parameter(self, parameter: dict[str, Any]) -> str:
        schema = _mapping(parameter.get("schema")) or parameter
        facts = (
            _words(parameter.get("in")),
            _type(schema),
            "required" if _yes(parameter.get("required")) else "",
        )
        return _described(f"{_words(parameter.get('name'))} ({', '.join(filter(None, facts))})", parameter)

    def _content(self, body: dict[str, Any]) -> Iterator[str]:
        for media_type, what in _mapping(body.get("content")).items():
            yield _described(f"{media_type}: {_type(_mapping(_mapping(what).get('schema')))}", body)

    def _response(self, code: str, response: dict[str, Any]) -> str:
        schemas = [
            _mapping(response.get("schema")),
            *(_mapping(_mapping(what).get("schema")) for what in _mapping(response.get("content")).values()),
        ]
        types = dict.fromkeys(filter(None, map(_type, schemas)))
        return _described(f"{code}{' (' + ', '.join(types) + ')' if types else ''}", response)

    def _schemas(self) -> dict[Any, Any]:
        return _mapping(_mapping(self._values.get("components")).get("schemas")) or _mapping(
            self._values.get("definitions")
        )

    def _schema(self, name: str, schema: dict[str, Any]) -> str:
        required = {str(field) for field in _list(schema.get("required"))}
        lines = [_described(f"{name}: {_type(schema, named=False) or 'object'}", schema)]
        for field, what in list(_mapping(schema.get("properties")).items())[:_MOST_PROPERTIES]:
            what = _mapping(what)
            lines.append(
                "- "
                + _described(f"{field} ({_type(what)}{', required' if str(field) in required else ''})", what)
            )
        return "\n".join(lines)

    def _resolved(self, value: Any) -> dict[str, Any]:
        """What a local reference points to, one step."""
        given = _mapping(value)
        target = given.get("$ref")
        if not isinstance(target, str) or not target.startswith("#/"):
            return given
        found: Any = self._values
        for step in target[2:].split("/")[:10]:
            found = _mapping(found).get(step.replace("~1", "/").replace("~0", "~"))
        return _mapping(found)


def _type(schema: dict[str, Any], depth: int = 0, *, named: bool = True) -> str:
    """A schema in a few words: `Pet`, `array of Pet`, `string (date-time)`."""
    if depth > _DEEPEST_TYPE:
        return "…"
    target = schema.get("$ref")
    if isinstance(target, str) and named:
        return target.rpartition("/")[2]
    for word, between in (("allOf", " and "), ("oneOf", " or "), ("anyOf", " or ")):
        if choices := _list(schema.get(word)):
            return between.join(filter(None, (_type(_mapping(choice), depth + 1) for choice in choices[:20])))
    if values := _list(schema.get("enum")):
        return "one of " + ", ".join(map(str, values[:30]))
    kind = schema.get("type")
    words = "/".join(map(str, kind)) if isinstance(kind, list) else _words(kind)
    if words == "array" or "items" in schema:
        return f"array of {_type(_mapping(schema.get('items')), depth + 1) or 'anything'}"
    form = _words(schema.get("format"))
    if form:
        return f"{words} ({form})"
    return words


def _described(text: str, what: dict[str, Any]) -> str:
    words = " ".join(_words(what.get("description")).split())
    if words:
        return f"{text}: {words}"
    return text


def _mapping(value: Any) -> dict[Any, Any]:
    if isinstance(value, dict):
        return value
    return {}


def _list(value: Any) -> list[Any]:
    if isinstance(value, list):
        return value
    return []


def _words(value: Any) -> str:
    if isinstance(value, str | int | float):
        return str(value).strip()
    return ""


def _yes(value: Any) -> bool:
    return value is True or value == "true"
