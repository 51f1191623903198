"""The newest rows of runs, in memory: what this process has just written needs no query."""

from collections import OrderedDict

from ai_platform_engineering.runtime.log.log_rows import RunRow

MAX_RUNS = 2048


class RecentRuns:
    """A bounded cache of committed rows; the ones that were written longest ago are dropped first.

    It belongs to the process that alone writes the database, and only commits put rows into it, in their
    order: so an entry is never out of date.
    """

    def __init__(self, most: int = MAX_RUNS) -> None:
        self._most = most
        self._rows: OrderedDict[str, RunRow] = OrderedDict()

    def add(self, row: RunRow) -> None:
        """Adds a row that was just committed."""
        self._rows[row.run_id] = row
        self._rows.move_to_end(row.run_id)
        if len(self._rows) > self._most:
            self._rows.popitem(last=False)

    def get(self, run_id: str) -> RunRow | None:
        return self._rows.get(run_id)

    def clear(self) -> None:
        self._rows.clear()
