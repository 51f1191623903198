"""Workbooks (xlsx): each sheet as a table under its name, with values in place of formulas."""

import io
import itertools
import warnings
from collections.abc import Iterator, Sequence
from datetime import date, datetime, time
from typing import Any

import openpyxl  # type: ignore[import-untyped]

from ai_platform_engineering.knowledge_bases.documents import ParsedDocument
from ai_platform_engineering.knowledge_bases.reading.document_kind import DetectedDocument
from ai_platform_engineering.knowledge_bases.reading.office_archive import OfficeArchive
from ai_platform_engineering.knowledge_bases.reading.reading_limits import (
    MAX_COLUMNS,
    MAX_ROWS,
    MAX_TEXT_CHARS,
)
from ai_platform_engineering.knowledge_bases.reading.section_builder import SectionBuilder

_SHEET_LEVEL = 1
_MAX_SCANNED_ROWS = 1_048_576  # of a sheet, as the programs have it


def parse(detected: DetectedDocument) -> ParsedDocument:
    title = OfficeArchive(detected.raw.content).read_title("docProps/core.xml")  # checks the limits, too
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about features that are not read
        workbook = openpyxl.load_workbook(
            io.BytesIO(detected.raw.content), read_only=True, data_only=True, keep_links=False
        )
        try:
            builder = SectionBuilder()
            for sheet in workbook.worksheets:
                _read_sheet(sheet, builder)
        finally:
            workbook.close()
    return builder.build_document(title or detected.name)


def _read_sheet(sheet: Any, builder: SectionBuilder) -> None:
    name = str(sheet.title)
    if builder.is_full:
        builder.leave_out_part(f"the sheet {name}")
        return
    builder.add_heading(_SHEET_LEVEL, name)
    last_row = sheet.max_row or _MAX_SCANNED_ROWS  # as the file says
    # Every row would be filled up to the size that the file claims.
    sheet.reset_dimensions()
    rows: list[list[str]] = []
    chars = 0
    has_more_columns = False
    for number, values in _find_rows(sheet):
        if len(rows) > MAX_ROWS or chars > MAX_TEXT_CHARS:
            builder.leave_out_part(f"rows {number:,} to {max(number, last_row):,} of the sheet {name}")
            break
        cells = [_format_value(value) for value in values[:MAX_COLUMNS]]
        has_more_columns = has_more_columns or any(value is not None for value in values[MAX_COLUMNS:])
        chars += sum(map(len, cells))
        rows.append(cells)
    builder.add_table(_drop_empty_columns(rows))
    if has_more_columns:
        builder.leave_out_part(f"the columns after column {MAX_COLUMNS} of the sheet {name}")


def _find_rows(sheet: Any) -> Iterator[tuple[int, Sequence[Any]]]:
    """The rows that have a value, with their numbers."""
    for number, values in enumerate(sheet.iter_rows(values_only=True), start=1):
        if number > _MAX_SCANNED_ROWS:
            return
        if any(value is not None for value in values):
            yield number, values


def _format_value(value: Any) -> str:
    match value:
        case None:
            return ""
        case datetime() if value.time() == time():
            return value.date().isoformat()
        case datetime():
            return value.isoformat(" ", "minutes")
        case date() | time():
            return value.isoformat()
        case float() if value.is_integer() and abs(value) < 1e15:
            return str(int(value))
        case float():
            return f"{value:.12g}"
        case _:
            return str(value)


def _drop_empty_columns(rows: list[list[str]]) -> list[list[str]]:
    """The rows, all of one length and without columns that have no value."""
    columns = itertools.zip_longest(*rows, fillvalue="")
    filled_columns = [column for column in columns if any(column)]
    if not filled_columns:
        return [[] for _ in rows]
    return [list(row) for row in zip(*filled_columns, strict=True)]
