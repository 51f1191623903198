"""Dates in JQL and CQL: absolute ones, relative ones ("-7d") and functions (startOfWeek())."""

import re
from datetime import UTC, datetime, timedelta

from ai_platform_engineering.demo.atlassian.query_syntax import QueryValue

_RELATIVE = re.compile(r"([+-]?)\s*((?:\d{1,4}\s*[yMwdhm]\s*)+)")
_AMOUNT = re.compile(r"(\d+)\s*([yMwdhm])")
_UNITS = {
    "y": timedelta(days=365),
    "M": timedelta(days=30),
    "w": timedelta(weeks=1),
    "d": timedelta(days=1),
    "h": timedelta(hours=1),
    "m": timedelta(minutes=1),
}
_FORMATS = ("%Y-%m-%d %H:%M", "%Y/%m/%d %H:%M", "%Y-%m-%d", "%Y/%m/%d")
_FUNCTION = re.compile(r"(startof|endof)(day|week|month|year)")


class UnknownDate(ValueError):
    """A value that is no date; the message says which."""


def read_date(value: QueryValue, now: datetime) -> datetime:
    """Raises UnknownDate."""
    try:
        return _read_date(value, now)
    except OverflowError as error:
        raise UnknownDate(f"Date value '{value.text}' is out of range.") from error


def _read_date(value: QueryValue, now: datetime) -> datetime:
    if value.arguments is not None:
        return _call_function(value.text, value.arguments, now)
    text = value.text.strip()
    shift = _read_shift(text)
    if shift is not None:
        return now + shift
    for date_format in _FORMATS:
        try:
            return datetime.strptime(text, date_format).replace(tzinfo=UTC)
        except ValueError:
            continue
    raise UnknownDate(
        f"Date value '{text}' is invalid. Valid formats include: 'yyyy/MM/dd HH:mm', 'yyyy-MM-dd HH:mm',"
        " 'yyyy/MM/dd', 'yyyy-MM-dd', or a period format e.g. '-5d', '4w 2d'."
    )


def _read_shift(text: str) -> timedelta | None:
    match = _RELATIVE.fullmatch(text)
    if match is None:
        return None
    shift = timedelta()
    for amount, unit in _AMOUNT.findall(match[2]):
        shift += int(amount) * _UNITS[unit]
    return -shift if match[1] == "-" else shift


def _call_function(name: str, arguments: tuple[str, ...], now: datetime) -> datetime:
    if name.lower() == "now":
        return now + _read_period(name, arguments[0]) if arguments else now
    match = _FUNCTION.fullmatch(name.lower())
    if match is None:
        raise UnknownDate(f"Unable to find the function '{name}()'.")
    edge, unit = match.groups()
    moment = now
    amount = 0
    if arguments:
        amount, moment = _shift_argument(name, arguments[0], unit, now)
    start = _add_units(_start_of(unit, moment), unit, amount)
    if edge == "startof":
        return start
    return _add_units(start, unit, 1) - timedelta(milliseconds=1)


def _shift_argument(name: str, argument: str, unit: str, now: datetime) -> tuple[int, datetime]:
    """Whole units ("-1") or a period ("-1M"), as startOfMonth() takes both."""
    if re.fullmatch(r"[+-]?\d{1,4}", argument):
        return int(argument), now
    own_period = re.fullmatch(r"([+-]?\d{1,4})([yMwd])", argument)
    letters = {"year": "y", "month": "M", "week": "w", "day": "d"}
    if own_period and own_period[2] == letters[unit]:
        return int(own_period[1]), now
    return 0, now + _read_period(name, argument)


def _read_period(name: str, argument: str) -> timedelta:
    shift = _read_shift(argument)
    if shift is None:
        raise UnknownDate(f"The argument '{argument}' of the function '{name}()' is no period such as '-1d'.")
    return shift


def _start_of(unit: str, moment: datetime) -> datetime:
    day = moment.replace(hour=0, minute=0, second=0, microsecond=0)
    if unit == "week":
        return day - timedelta(days=(day.weekday() + 1) % 7)  # weeks begin on Sunday
    if unit == "month":
        return day.replace(day=1)
    if unit == "year":
        return day.replace(month=1, day=1)
    return day


def _add_units(start: datetime, unit: str, amount: int) -> datetime:
    if unit == "day":
        return start + timedelta(days=amount)
    if unit == "week":
        return start + timedelta(weeks=amount)
    months = start.year * 12 + start.month - 1 + amount * (12 if unit == "year" else 1)
    year = min(max(months // 12, 1), 9998)
    return start.replace(year=year, month=months % 12 + 1)
