"""The run that a message starts, and the stored runs that it may belong to."""

import uuid

from ai_platform_engineering.a2a.message_parts import UserPart, hash_parts
from ai_platform_engineering.core.events import RunStarted
from ai_platform_engineering.runtime.log.log_rows import NewRun, RunRow
from ai_platform_engineering.runtime.log.run_log import RunLog
from ai_platform_engineering.runtime.runs.incoming_message import IncomingMessage


def make_new_run(message: IncomingMessage, parts: tuple[UserPart, ...]) -> NewRun:
    return NewRun(
        run_id=message.run_id or str(uuid.uuid4()),
        context_id=message.context_id or str(uuid.uuid4()),
        owner=message.owner,
        message_id=message.message_id,
        digest=hash_parts(message.parts),
        started=RunStarted(
            message_id=message.message_id, parts=parts, owner=message.owner, principal=message.principal
        ),
        lasting_id=message.context_id is not None,
        push=message.push,
    )


async def is_repeated_question(run_log: RunLog, message: IncomingMessage, context_id: str) -> bool:
    """Whether a run of the conversation began with this message: it is no answer, and no new question."""
    row = await run_log.find_run_of_message(message.owner, context_id, message.message_id)
    return row is not None


async def find_paused_run(run_log: RunLog, owner: str, context_id: str) -> RunRow | None:
    """The newest run of the conversation that waits for people."""
    for row in await run_log.find_open_runs(owner, context_id):
        if row.status == "paused":
            return row
    return None


async def find_run_of_request(run_log: RunLog, request_id: str) -> RunRow | None:
    request = await run_log.request(request_id)
    if request is None:
        return None
    return await run_log.get(request.run_id)
