"""OpenAPI and Swagger: one section for each operation, then the schemas."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from ai_platform_engineering.knowledge_bases.documents import ParsedDocument, Section
from ai_platform_engineering.knowledge_bases.reading.document_kind import DetectedDocument
from ai_platform_engineering.knowledge_bases.reading.json_yaml import load_json, load_yaml
from ai_platform_engineering.knowledge_bases.reading.section_builder import SectionBuilder

_METHODS = ("get", "put", "post", "delete", "options", "head", "patch", "trace", "query")
_MAX_PROPERTIES = 200
_MAX_TYPE_DEPTH = 4


def parse(detected: DetectedDocument) -> ParsedDocument:
    """Raises ValueError for what is no description of an interface, so that it is read as any other file."""
    values = None
    if detected.text.lstrip().startswith("{"):
        values = load_json(detected.text)
    if values is None:
        values = load_yaml(detected.text)
    reader = _ApiReader(values)
    return ParsedDocument(reader.title or detected.name, reader.read())


@dataclass(frozen=True, slots=True)
class _ApiOperation:
    """A method of a path. `path_parameters` are those of all operations of the path."""

    method: str
    path: str
    values: dict[str, Any]
    path_parameters: list[Any]

    @property
    def tag(self) -> str:
        tags = _list(self.values.get("tags"))
        if not tags:
            return "Operations"
        return _words(tags[0]) or "Operations"


class _ApiReader:
    """Reads the operations and schemas of an API description."""

    def __init__(self, values: Any) -> None:
        self._values = _mapping(values)
        self._info = _mapping(self._values.get("info"))
        self._builder = SectionBuilder()

    @property
    def title(self) -> str:
        return _words(self._info.get("title"))

    def read(self) -> tuple[Section, ...]:
        operations = [*self._operations("paths"), *self._operations("webhooks")]
        if not operations and not self._schemas():
            raise ValueError("no operations and no schemas")
        self._builder.add_text("\n\n".join(filter(None, self._introduction())))
        for tag in dict.fromkeys(operation.tag for operation in operations):
            self._builder.add_heading(1, tag)
            self._builder.add_text(self._describe_tag(tag))
            for operation in operations:
                if operation.tag == tag:
                    self._add_operation(operation)
        for number, (name, schema) in enumerate(self._schemas().items()):
            if number == 0:
                self._builder.add_heading(1, "Schemas")
            self._builder.add_heading(2, str(name))
            self._builder.add_text(self._render_schema(str(name), _mapping(schema)), "list")
        return self._builder.build()

    def _introduction(self) -> Iterator[str]:
        version = _words(self._info.get("version"))
        if version:
            yield f"{self.title}, version {version}"
        else:
            yield self.title
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

    def _describe_tag(self, tag: str) -> str:
        for values in map(_mapping, _list(self._values.get("tags"))):
            if _words(values.get("name")) == tag:
                return _words(values.get("description"))
        return ""

    def _operations(self, key: str) -> Iterator[_ApiOperation]:
        for path, item in _mapping(self._values.get(key)).items():
            item = self._resolve(item)
            for method in _METHODS:
                values = item.get(method)
                if isinstance(values, dict):
                    yield _ApiOperation(method.upper(), str(path), values, _list(item.get("parameters")))

    def _add_operation(self, operation: _ApiOperation) -> None:
        values = operation.values
        signature = f"{operation.method} {operation.path}"
        heading = signature
        summary = _words(values.get("summary")).rstrip(".")
        if summary:
            heading = f"{signature}: {summary}"
        self._builder.add_heading(2, heading)
        facts = [f"`{signature}`"]
        name = _words(values.get("operationId"))
        if name:
            facts.append(f"operation `{name}`")
        if _is_true(values.get("deprecated")):
            facts.append("deprecated")
        self._builder.add_text(", ".join(facts))
        self._builder.add_text(_words(values.get("description")))
        parameters = map(self._resolve, (*operation.path_parameters, *_list(values.get("parameters"))))
        self._add_list("Parameters", map(_render_parameter, parameters))
        self._add_list("Request body", _render_content(self._resolve(values.get("requestBody"))))
        responses = _mapping(values.get("responses")).items()
        self._add_list(
            "Responses",
            (_render_response(str(code), self._resolve(response)) for code, response in responses),
        )

    def _add_list(self, title: str, lines: Iterable[str]) -> None:
        items = [f"- {line}" for line in lines if line]
        if items:
            self._builder.add_text(f"{title}:\n" + "\n".join(items), "list")

    def _schemas(self) -> dict[Any, Any]:
        return _mapping(_mapping(self._values.get("components")).get("schemas")) or _mapping(
            self._values.get("definitions")
        )

    def _render_schema(self, name: str, schema: dict[str, Any]) -> str:
        required = {str(field) for field in _list(schema.get("required"))}
        lines = [_add_description(f"{name}: {_render_type(schema, named=False) or 'object'}", schema)]
        for field, value in list(_mapping(schema.get("properties")).items())[:_MAX_PROPERTIES]:
            field_schema = _mapping(value)
            facts = _render_type(field_schema)
            if str(field) in required:
                facts += ", required"
            lines.append("- " + _add_description(f"{field} ({facts})", field_schema))
        return "\n".join(lines)

    def _resolve(self, value: Any) -> dict[str, Any]:
        """The target of a local reference, one step; any other value as it is."""
        values = _mapping(value)
        reference = values.get("$ref")
        if not isinstance(reference, str) or not reference.startswith("#/"):
            return values
        target: Any = self._values
        for step in reference[2:].split("/")[:10]:
            target = _mapping(target).get(step.replace("~1", "/").replace("~0", "~"))
        return _mapping(target)


def _render_parameter(parameter: dict[str, Any]) -> str:
    schema = _mapping(parameter.get("schema")) or parameter
    facts = [_words(parameter.get("in")), _render_type(schema)]
    if _is_true(parameter.get("required")):
        facts.append("required")
    return _add_description(f"{_words(parameter.get('name'))} ({', '.join(filter(None, facts))})", parameter)


def _render_content(body: dict[str, Any]) -> Iterator[str]:
    for media_type, value in _mapping(body.get("content")).items():
        schema = _mapping(_mapping(value).get("schema"))
        yield _add_description(f"{media_type}: {_render_type(schema)}", body)


def _render_response(code: str, response: dict[str, Any]) -> str:
    schemas = [response.get("schema")]
    for content in _mapping(response.get("content")).values():
        schemas.append(_mapping(content).get("schema"))
    types = dict.fromkeys(_render_type(_mapping(schema)) for schema in schemas)
    types.pop("", None)
    if types:
        return _add_description(f"{code} ({', '.join(types)})", response)
    return _add_description(code, response)


def _render_type(schema: dict[str, Any], depth: int = 0, *, named: bool = True) -> str:
    """A schema in a few words: `Pet`, `array of Pet`, `string (date-time)`."""
    if depth > _MAX_TYPE_DEPTH:
        return "…"
    target = schema.get("$ref")
    if isinstance(target, str) and named:
        return target.rpartition("/")[2]
    for keyword, conjunction in (("allOf", " and "), ("oneOf", " or "), ("anyOf", " or ")):
        choices = _list(schema.get(keyword))
        if choices:
            types = (_render_type(_mapping(choice), depth + 1) for choice in choices[:20])
            return conjunction.join(filter(None, types))
    enum = _list(schema.get("enum"))
    if enum:
        return "one of " + ", ".join(map(str, enum[:30]))
    kind = schema.get("type")
    words = _words(kind)
    if isinstance(kind, list):
        words = "/".join(map(str, kind))
    if words == "array" or "items" in schema:
        return f"array of {_render_type(_mapping(schema.get('items')), depth + 1) or 'anything'}"
    form = _words(schema.get("format"))
    if form:
        return f"{words} ({form})"
    return words


def _add_description(text: str, what: dict[str, Any]) -> str:
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


def _is_true(value: Any) -> bool:
    return value is True or value == "true"
