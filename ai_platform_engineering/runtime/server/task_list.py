"""Pages of a task list (`ListTasks`), the latest status first."""

from datetime import UTC, datetime, timedelta

from a2a.types import ListTasksRequest, ListTasksResponse, Task, TaskState
from a2a.utils.errors import InvalidParamsError
from a2a.utils.task import (
    ListTasksCursor,
    apply_history_length,
    decode_list_tasks_cursor,
    encode_list_tasks_cursor,
)

from ai_platform_engineering.a2a.frame_protobuf import read_state
from ai_platform_engineering.runtime.log.log_rows import RunFilter, RunPage, RunPosition

_PAGE_SIZE = 50
_WRONG_TOKEN = "The page token is not one of this list."
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def read_page_size(params: ListTasksRequest) -> int:
    """How many tasks the request wants at most."""
    if params.HasField("page_size"):
        return params.page_size
    return _PAGE_SIZE


def read_filter(params: ListTasksRequest, owner: str) -> RunFilter | None:
    """Which runs the request asks for; None when no task of ours can match."""
    state = None
    if params.status != TaskState.TASK_STATE_UNSPECIFIED:
        state = read_state(params.status)
        if state is None:
            return None
    since = None
    if params.HasField("status_timestamp_after"):
        since = params.status_timestamp_after.ToDatetime(UTC)
    return RunFilter(owner, params.context_id or None, state, since)


def read_position(params: ListTasksRequest) -> RunPosition | None:
    """Where the page begins: behind the last task of the page before. Raises InvalidParamsError."""
    if not params.page_token:
        return None
    cursor = decode_list_tasks_cursor(params.page_token)
    if cursor is None or cursor.timestamp_ns is None:
        raise InvalidParamsError(message=_WRONG_TOKEN)
    try:
        state_at = _EPOCH + timedelta(microseconds=cursor.timestamp_ns // 1000)
    except OverflowError:  # a token that somebody made up
        raise InvalidParamsError(message=_WRONG_TOKEN) from None
    return RunPosition(state_at, cursor.task_id)


def build_task_page(params: ListTasksRequest, page: RunPage, tasks: list[Task]) -> ListTasksResponse:
    """The page with the tasks of its runs."""
    response = ListTasksResponse(page_size=read_page_size(params), total_size=page.total)
    for task in tasks:
        response.tasks.append(_trim_task(params, task))
    if page.has_more:
        response.next_page_token = _encode_position(RunPosition.of(page.rows[-1]))
    return response


def _encode_position(position: RunPosition) -> str:
    microseconds = (position.state_at - _EPOCH) // timedelta(microseconds=1)
    return encode_list_tasks_cursor(ListTasksCursor(microseconds * 1000, position.run_id))


def _trim_task(params: ListTasksRequest, task: Task) -> Task:
    """The task with the history and artifacts that the request asks for."""
    trimmed = apply_history_length(task, params)
    if not params.include_artifacts:
        trimmed.ClearField("artifacts")
        trimmed.ClearField("metadata")  # it holds the events with the same texts
    return trimmed
