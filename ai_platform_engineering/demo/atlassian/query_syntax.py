"""The syntax that JQL and CQL share: comparisons with AND, OR, NOT, brackets and ORDER BY."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

MAX_QUERY_LENGTH = 10_000
MAX_NESTING = 40

_TOKEN = re.compile(
    r"""\s*(?:
    (?P<quoted>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')
    |(?P<symbol>!=|!~|<=|>=|&&|\|\||[=~<>(),!])
    |(?P<word>[^\s=!<>~(),"'&|]+)
    )""",
    re.VERBOSE,
)
_SYMBOL_OPERATORS = ("=", "!=", "~", "!~", "<", "<=", ">", ">=")
_ESCAPE = re.compile(r"\\(.)")

Item = TypeVar("Item")
Predicate = Callable[[Item], bool]


class QuerySyntaxError(Exception):
    """A query that cannot be parsed."""


@dataclass(frozen=True, slots=True)
class QueryValue:
    """A value in a query; with `arguments` it is a function's call."""

    text: str
    arguments: tuple[str, ...] | None = None
    quoted: bool = False

    @property
    def is_empty(self) -> bool:
        return not self.quoted and self.arguments is None and self.text.upper() in ("EMPTY", "NULL")


@dataclass(frozen=True, slots=True)
class Comparison:
    """`operator` is in upper case: one of the symbols, IN, NOT IN, IS or IS NOT."""

    field: str
    operator: str
    values: tuple[QueryValue, ...]


@dataclass(frozen=True, slots=True)
class Negation:
    condition: "Condition"


@dataclass(frozen=True, slots=True)
class Conjunction:
    conditions: tuple["Condition", ...]


@dataclass(frozen=True, slots=True)
class Disjunction:
    conditions: tuple["Condition", ...]


Condition = Comparison | Negation | Conjunction | Disjunction


@dataclass(frozen=True, slots=True)
class OrderTerm:
    field: str
    descending: bool


@dataclass(frozen=True, slots=True)
class ParsedQuery:
    condition: Condition | None
    order: tuple[OrderTerm, ...]


def parse_query(text: str) -> ParsedQuery:
    """Raises QuerySyntaxError."""
    if len(text) > MAX_QUERY_LENGTH:
        raise QuerySyntaxError(f"The query is longer than {MAX_QUERY_LENGTH} characters.")
    return _QueryParser(_split_tokens(text)).parse()


def compile_condition(
    condition: Condition | None, compile_comparison: Callable[[Comparison], Predicate[Item]]
) -> Predicate[Item]:
    """A function that says whether an item fulfils the condition; without a condition every item does."""
    if condition is None:
        return lambda _: True
    if isinstance(condition, Comparison):
        return compile_comparison(condition)
    if isinstance(condition, Negation):
        predicate = compile_condition(condition.condition, compile_comparison)
        return lambda item: not predicate(item)
    predicates = [compile_condition(part, compile_comparison) for part in condition.conditions]
    if isinstance(condition, Conjunction):
        return lambda item: all(part(item) for part in predicates)
    return lambda item: any(part(item) for part in predicates)


@dataclass(frozen=True, slots=True)
class _Token:
    text: str
    position: int
    kind: str

    def is_word(self, *words: str) -> bool:
        return self.kind == "word" and self.text.upper() in words

    def is_symbol(self, *symbols: str) -> bool:
        return self.kind == "symbol" and self.text in symbols


def _split_tokens(text: str) -> list[_Token]:
    tokens: list[_Token] = []
    position = 0
    length = len(text.rstrip())
    while position < length:
        match = _TOKEN.match(text, position)
        if match is None or match.lastgroup is None:
            rest = text[position:].lstrip()
            raise QuerySyntaxError(
                f"The character '{rest[0]}' was not expected at character {len(text) - len(rest) + 1};"
                " quote values with special characters."
            )
        kind = match.lastgroup
        start = match.start(kind)
        token_text = match[kind]
        if kind == "quoted":
            token_text = _ESCAPE.sub(_unescape, token_text[1:-1])
        tokens.append(_Token(token_text, start + 1, kind))
        position = match.end()
    tokens.append(_Token("", length + 1, "end"))
    return tokens


def _unescape(match: re.Match[str]) -> str:
    # A quoted quotation mark within a text search makes a phrase, so the mark is kept for it.
    return match[1]


class _QueryParser:
    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens = tokens
        self._index = 0
        self._depth = 0

    def parse(self) -> ParsedQuery:
        condition = None
        if self._next.kind != "end" and not self._next.is_word("ORDER"):
            condition = self._parse_disjunction()
        order = self._parse_order()
        if self._next.kind != "end":
            raise self._unexpected("either 'OR' or 'AND'")
        return ParsedQuery(condition, order)

    @property
    def _next(self) -> _Token:
        return self._tokens[self._index]

    def _take(self) -> _Token:
        token = self._next
        self._index += 1
        return token

    def _take_word(self, *words: str) -> bool:
        if self._next.is_word(*words):
            self._index += 1
            return True
        return False

    def _take_symbol(self, *symbols: str) -> bool:
        if self._next.is_symbol(*symbols):
            self._index += 1
            return True
        return False

    def _unexpected(self, expected: str) -> QuerySyntaxError:
        token = self._next
        if token.kind == "end":
            return QuerySyntaxError(f"Expecting {expected} before the end of the query.")
        return QuerySyntaxError(
            f"Expecting {expected} but got '{token.text}'. (line 1, character {token.position})"
        )

    def _parse_disjunction(self) -> Condition:
        conditions = [self._parse_conjunction()]
        while self._take_word("OR") or self._take_symbol("||"):
            conditions.append(self._parse_conjunction())
        return conditions[0] if len(conditions) == 1 else Disjunction(tuple(conditions))

    def _parse_conjunction(self) -> Condition:
        conditions = [self._parse_negation()]
        while self._take_word("AND") or self._take_symbol("&&"):
            conditions.append(self._parse_negation())
        return conditions[0] if len(conditions) == 1 else Conjunction(tuple(conditions))

    def _parse_negation(self) -> Condition:
        self._depth += 1
        if self._depth > MAX_NESTING:
            raise QuerySyntaxError(f"The query is nested deeper than {MAX_NESTING} levels.")
        try:
            if self._take_word("NOT") or self._take_symbol("!"):
                return Negation(self._parse_negation())
            if not self._take_symbol("("):
                return self._parse_comparison()
            condition = self._parse_disjunction()
            if not self._take_symbol(")"):
                raise self._unexpected("')'")
            return condition
        finally:
            self._depth -= 1

    def _parse_comparison(self) -> Comparison:
        if self._next.kind not in ("word", "quoted"):
            raise self._unexpected("a field name")
        field = self._take().text
        operator = self._parse_operator()
        if operator in ("IN", "NOT IN"):
            return Comparison(field, operator, self._parse_list())
        return Comparison(field, operator, (self._parse_value(),))

    def _parse_operator(self) -> str:
        if self._next.is_symbol(*_SYMBOL_OPERATORS):
            return self._take().text
        if self._take_word("IN"):
            return "IN"
        if self._take_word("IS"):
            return "IS NOT" if self._take_word("NOT") else "IS"
        if self._next.is_word("NOT") and self._tokens[self._index + 1].is_word("IN"):
            self._index += 2
            return "NOT IN"
        if self._next.is_word("WAS", "CHANGED"):
            raise QuerySyntaxError(f"The operator '{self._next.text.upper()}' is not supported here.")
        raise self._unexpected("an operator ('=', '!=', '<', '>', '<=', '>=', '~', '!~', 'IN', 'IS')")

    def _parse_list(self) -> tuple[QueryValue, ...]:
        if not self._take_symbol("("):
            value = self._parse_value()
            if value.arguments is None:
                raise QuerySyntaxError("The operator 'IN' expects a list in brackets or a function.")
            return (value,)
        values = [self._parse_value()]
        while self._take_symbol(","):
            values.append(self._parse_value())
        if not self._take_symbol(")"):
            raise self._unexpected("')' or ','")
        return tuple(values)

    def _parse_value(self) -> QueryValue:
        if self._next.kind not in ("word", "quoted"):
            raise self._unexpected("a value or a function")
        token = self._take()
        if token.kind == "quoted" or not self._take_symbol("("):
            return QueryValue(token.text, quoted=token.kind == "quoted")
        arguments: list[str] = []
        while not self._take_symbol(")"):
            if self._next.kind not in ("word", "quoted"):
                raise self._unexpected("an argument or ')'")
            arguments.append(self._take().text)
            self._take_symbol(",")
        return QueryValue(token.text, tuple(arguments))

    def _parse_order(self) -> tuple[OrderTerm, ...]:
        if not self._take_word("ORDER"):
            return ()
        if not self._take_word("BY"):
            raise self._unexpected("'BY'")
        terms = [self._parse_order_term()]
        while self._take_symbol(","):
            terms.append(self._parse_order_term())
        return tuple(terms)

    def _parse_order_term(self) -> OrderTerm:
        if self._next.kind not in ("word", "quoted"):
            raise self._unexpected("a field to order by")
        field = self._take().text
        if self._take_word("DESC"):
            return OrderTerm(field, descending=True)
        self._take_word("ASC")
        return OrderTerm(field, descending=False)
