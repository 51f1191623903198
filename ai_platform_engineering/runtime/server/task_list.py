"""Pages of a task list (`ListTasks`), newest first."""

from collections.abc import Sequence
from datetime import UTC, datetime

from a2a.types import ListTasksRequest, ListTasksResponse, Task, TaskState
from a2a.utils.errors import InvalidParamsError
from a2a.utils.task import (
    ListTasksCursor,
    apply_history_length,
    decode_list_tasks_cursor,
    encode_list_tasks_cursor,
)

_PAGE_SIZE = 50


def build_task_page(params: ListTasksRequest, tasks: Sequence[tuple[datetime, Task]]) -> ListTasksResponse:
    """The page of the tasks that match the request.

    The page token is a position, which stays valid when tasks change."""
    size = params.page_size if params.HasField("page_size") else _PAGE_SIZE
    entries: list[tuple[ListTasksCursor, Task]] = []
    for updated, task in tasks:
        if _matches(params, updated, task):
            entries.append((_position(updated, task), task))
    entries.sort(key=lambda entry: entry[0].sort_key(), reverse=True)
    total = len(entries)
    if params.page_token:
        after = decode_list_tasks_cursor(params.page_token)
        if after is None:
            raise InvalidParamsError(message="The page token is not one of this list.")
        entries = [entry for entry in entries if entry[0].sort_key() < after.sort_key()]
    response = ListTasksResponse(page_size=size, total_size=total)
    for _, task in entries[:size]:
        response.tasks.append(_trim_task(params, task))
    if len(entries) > size:
        response.next_page_token = encode_list_tasks_cursor(entries[size - 1][0])
    return response


def _matches(params: ListTasksRequest, updated: datetime, task: Task) -> bool:
    if params.status != TaskState.TASK_STATE_UNSPECIFIED and task.status.state != params.status:
        return False
    if not params.HasField("status_timestamp_after"):
        return True
    return updated >= params.status_timestamp_after.ToDatetime(UTC)


def _position(updated: datetime, task: Task) -> ListTasksCursor:
    return ListTasksCursor(int(updated.timestamp() * 1_000_000) * 1000, task.id)


def _trim_task(params: ListTasksRequest, task: Task) -> Task:
    """A copy of the task with the history and artifacts that the request asks for."""
    trimmed = Task()
    trimmed.CopyFrom(apply_history_length(task, params))
    if not params.include_artifacts:
        trimmed.ClearField("artifacts")
        trimmed.ClearField("metadata")  # it holds the events with the same texts
    return trimmed
