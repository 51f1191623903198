"""All runs and open requests of an owner, page by page."""

from ai_platform_engineering.runtime.log.log_rows import PendingRequest, RunFilter, RunPosition, RunRow
from ai_platform_engineering.runtime.log.run_log import RunLog


async def list_all_runs(
    log: RunLog, owner: str, context_id: str | None = None, size: int = 3
) -> list[RunRow]:
    """The runs of an owner, the latest change of state first."""
    rows: list[RunRow] = []
    position: RunPosition | None = None
    while True:
        page = await log.list_runs(RunFilter(owner, context_id), after=position, limit=size)
        rows += page.rows
        assert page.total >= len(rows)
        if not page.has_more:
            assert page.total == len(rows)
            return rows
        position = RunPosition.of(page.rows[-1])


async def list_all_open_requests(log: RunLog, owner: str, size: int = 2) -> list[PendingRequest]:
    """The requests of an owner that can be answered, oldest first."""
    requests: list[PendingRequest] = []
    after: int | None = 0
    while after is not None:
        page = await log.list_open_requests(owner, after=after, limit=size)
        requests += [request for request, _ in page.items]
        after = page.next_after
    return requests
