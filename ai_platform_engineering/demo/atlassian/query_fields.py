"""Fields of JQL and CQL: which operators each has, and what a comparison with it means."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Generic

from ai_platform_engineering.demo.atlassian.query_dates import UnknownDate, read_date
from ai_platform_engineering.demo.atlassian.query_syntax import (
    Comparison,
    Item,
    ParsedQuery,
    Predicate,
    QueryValue,
    compile_condition,
)
from ai_platform_engineering.demo.atlassian.text_match import TooManyTerms, compile_text_match

SortValue = str | int | float

_EQUALITY = ("=", "!=", "IN", "NOT IN")
_EMPTINESS = ("IS", "IS NOT")
_TEXT = ("~", "!~")
_ORDER = ("<", "<=", ">", ">=")


class FieldKind(StrEnum):
    CHOICE = "choice"  # values are equal or not
    RANKED = "ranked"  # as CHOICE, and values have an order
    TEXT = "text"  # values are searched
    TITLE = "title"  # values are searched or equal
    DATE = "date"


_OPERATORS = {
    FieldKind.CHOICE: (*_EQUALITY, *_EMPTINESS),
    FieldKind.RANKED: (*_EQUALITY, *_EMPTINESS, *_ORDER),
    FieldKind.TEXT: (*_TEXT, *_EMPTINESS),
    FieldKind.TITLE: (*_TEXT, *_EQUALITY, *_EMPTINESS),
    FieldKind.DATE: (*_EQUALITY, *_EMPTINESS, *_ORDER),
}


class QueryFieldError(Exception):
    """A field, an operator or a value that does not exist."""


@dataclass(frozen=True, slots=True)
class QueryField(Generic[Item]):
    """A field of a query language.

    `read` gives all names that an item's values go by: a project's key and its name, for example.
    `allowed` are the values that exist, where others are an error; `ranks` the values, the lowest first.
    `read_date` is for fields that are dates, `text_share` the part of a search's words that a text must have.
    """

    name: str
    kind: FieldKind
    read: Callable[[Item], Sequence[str]]
    allowed: Collection[str] | None = None
    ranks: Sequence[str] = ()
    read_date: Callable[[Item], datetime | None] | None = None
    sort_key: Callable[[Item], SortValue] | None = None
    text_share: float = 1.0


class QueryCompiler(Generic[Item]):
    """Turns parsed queries into predicates and orders over items.

    `functions` are functions without arguments and the values that they stand for now, `empty_words` values
    that stand for none. In Jira an item without a value is not "!=" to one, in Confluence it is.
    """

    def __init__(
        self,
        fields: Mapping[str, QueryField[Item]],
        now: datetime,
        functions: Mapping[str, Sequence[str]],
        *,
        empty_words: Collection[str] = (),
        empty_is_unequal: bool = False,
    ) -> None:
        self._fields = fields
        self._now = now
        self._functions = functions
        self._empty_words = {word.lower() for word in empty_words}
        self._empty_is_unequal = empty_is_unequal

    def select(self, query: ParsedQuery, items: Sequence[Item]) -> list[Item]:
        """The items that match, in the query's order. Raises QueryFieldError."""
        predicate = compile_condition(query.condition, self.compile_comparison)
        sort_keys = [(self._sort_key(term.field), term.descending) for term in query.order]
        selected = [item for item in items if predicate(item)]
        for key, descending in reversed(sort_keys):
            selected.sort(key=key, reverse=descending)
        return selected

    def compile_comparison(self, comparison: Comparison) -> Predicate[Item]:
        """Raises QueryFieldError."""
        field = self._find_field(comparison.field)
        operator = comparison.operator
        is_empty_test = comparison.values[0].is_empty and operator in ("=", "!=")
        if operator not in _OPERATORS[field.kind] and not is_empty_test:
            raise QueryFieldError(f"The operator '{operator}' is not supported by the '{field.name}' field.")
        if operator in _EMPTINESS or is_empty_test:
            return self._compile_emptiness(field, comparison)
        if operator in _TEXT:
            return _compile_search(field, comparison)
        if field.kind == FieldKind.DATE:
            return self._compile_date(field, comparison)
        if operator in _ORDER:
            return self._compile_rank(field, comparison)
        return self._compile_equality(field, comparison)

    def _find_field(self, name: str) -> QueryField[Item]:
        field = self._fields.get(name.lower())
        if field is None:
            raise QueryFieldError(f"Field '{name}' does not exist or you do not have permission to view it.")
        return field

    def _sort_key(self, name: str) -> Callable[[Item], SortValue]:
        field = self._find_field(name)
        if field.sort_key is not None:
            return field.sort_key
        if field.read_date is not None:
            return lambda item: _read_timestamp(field, item)
        if field.kind == FieldKind.TEXT:
            raise QueryFieldError(f"Field '{name}' does not support sorting.")
        return lambda item: next(iter(field.read(item)), "").lower()

    def _compile_emptiness(self, field: QueryField[Item], comparison: Comparison) -> Predicate[Item]:
        if not comparison.values[0].is_empty:
            raise QueryFieldError(f"The operator '{comparison.operator}' expects EMPTY or NULL.")
        wants_empty = comparison.operator in ("IS", "=")
        if field.read_date is not None:
            read_date_of = field.read_date
            return lambda item: (read_date_of(item) is None) == wants_empty
        return lambda item: (not any(field.read(item))) == wants_empty

    def _compile_equality(self, field: QueryField[Item], comparison: Comparison) -> Predicate[Item]:
        names = {name.lower() for value in comparison.values for name in self._resolve(field, value)}
        includes_empty = any(value.is_empty for value in comparison.values)
        if names & self._empty_words:
            includes_empty = True
        is_negated = comparison.operator in ("!=", "NOT IN")

        def is_equal(item: Item) -> bool:
            own_names = [name.lower() for name in field.read(item) if name]
            if not own_names:
                return self._empty_is_unequal if is_negated else includes_empty
            return bool(names.intersection(own_names)) != is_negated

        return is_equal

    def _resolve(self, field: QueryField[Item], value: QueryValue) -> Sequence[str]:
        """The names that a value stands for: its own, or those that a function gives."""
        if value.arguments is not None:
            names = self._functions.get(value.text.lower())
            if names is None:
                raise QueryFieldError(f"Unable to find the function '{value.text}()'.")
            return names
        if value.is_empty or value.text.lower() in self._empty_words:
            return (value.text,)
        if field.allowed is not None and value.text.lower() not in {name.lower() for name in field.allowed}:
            raise QueryFieldError(f"The value '{value.text}' does not exist for the field '{field.name}'.")
        return (value.text,)

    def _compile_rank(self, field: QueryField[Item], comparison: Comparison) -> Predicate[Item]:
        ranks = {name.lower(): number for number, name in enumerate(field.ranks)}
        value = self._resolve(field, comparison.values[0])[0].lower()
        limit = ranks.get(value, -1)

        def is_in_order(item: Item) -> bool:
            rank = max((ranks.get(name.lower(), -1) for name in field.read(item)), default=-1)
            return rank >= 0 and _compare(comparison.operator, rank, limit)

        return is_in_order

    def _compile_date(self, field: QueryField[Item], comparison: Comparison) -> Predicate[Item]:
        assert field.read_date is not None
        read_date_of = field.read_date
        try:
            dates = [read_date(value, self._now) for value in comparison.values]
        except UnknownDate as error:
            raise QueryFieldError(f"{error} (field '{field.name}')") from error
        is_negated = comparison.operator in ("!=", "NOT IN")

        def is_then(item: Item) -> bool:
            moment = read_date_of(item)
            if moment is None:
                return False
            if comparison.operator in _ORDER:
                return _compare(comparison.operator, moment.timestamp(), dates[0].timestamp())
            is_same = any(start <= moment < start + timedelta(days=1) for start in dates)
            return is_same != is_negated

        return is_then


def _compile_search(field: QueryField[Item], comparison: Comparison) -> Predicate[Item]:
    try:
        matches = compile_text_match(comparison.values[0].text, field.text_share)
    except TooManyTerms as error:
        raise QueryFieldError(str(error)) from error
    is_negated = comparison.operator == "!~"
    return lambda item: matches("\n".join(field.read(item))) != is_negated


def _read_timestamp(field: QueryField[Item], item: Item) -> float:
    assert field.read_date is not None
    moment = field.read_date(item)
    return moment.timestamp() if moment else 0.0


def _compare(operator: str, left: float, right: float) -> bool:
    if operator == "<":
        return left < right
    if operator == "<=":
        return left <= right
    if operator == ">":
        return left > right
    return left >= right
