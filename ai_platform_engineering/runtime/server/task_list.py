"""One page of a task list, newest first."""

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
    """What the request asks for; the token carries a position, so it stays valid when tasks change."""
    size = params.page_size if params.HasField("page_size") else _PAGE_SIZE
    wanted = [
        (_position(updated, task), task) for updated, task in tasks if _is_wanted(params, updated, task)
    ]
    wanted.sort(key=lambda found: found[0].sort_key(), reverse=True)
    total = len(wanted)
    if params.page_token:
        after = decode_list_tasks_cursor(params.page_token)
        if after is None:
            raise InvalidParamsError(message="The page token is not one of this list.")
        wanted = [found for found in wanted if found[0].sort_key() < after.sort_key()]
    answer = ListTasksResponse(page_size=size, total_size=total)
    for _, task in wanted[:size]:
        answer.tasks.append(_trimmed(params, task))
    if len(wanted) > size:
        answer.next_page_token = encode_list_tasks_cursor(wanted[size - 1][0])
    return answer


def _is_wanted(params: ListTasksRequest, updated: datetime, task: Task) -> bool:
    if params.status != TaskState.TASK_STATE_UNSPECIFIED and task.status.state != params.status:
        return False
    return not params.HasField(
        "status_timestamp_after"
    ) or updated >= params.status_timestamp_after.ToDatetime(UTC)


def _position(updated: datetime, task: Task) -> ListTasksCursor:
    return ListTasksCursor(int(updated.timestamp() * 1_000_000) * 1000, task.id)


def _trimmed(params: ListTasksRequest, task: Task) -> Task:
    shown = Task()
    shown.CopyFrom(apply_history_length(task, params))
    if not params.include_artifacts:
        shown.ClearField("artifacts")
        shown.ClearField("metadata")  # the events behind the artifacts
    return shown
