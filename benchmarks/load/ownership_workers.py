"""The processes of `benchmarks.ownership`: workers that claim runs and keep them, one kind for each engine.

    python -m benchmarks.load.ownership_workers rows|dbos|enqueue|a2a URL NAME COUNT

A worker prints `ready`. A line on the standard input of a DBOS worker names an executor that is dead.
"""

import asyncio
import importlib
import json
import sys
import threading
import uuid
from typing import Any

SCHEMA = "bench"
QUEUE = "runs"
APPLICATION = "ownership"
POLLS_SECONDS = 5.0
SUBSCRIBERS = 10


async def hold_rows(url: str, room: int) -> None:
    """A replica of the run log: its real lease, epochs and look for runs without a holder."""
    from ai_platform_engineering.databases.postgres_database import PostgresAddress
    from ai_platform_engineering.runtime.log.log_rows import RunRow
    from ai_platform_engineering.runtime.log.postgres_log import PostgresLog
    from ai_platform_engineering.runtime.log.replica_store import RoomForRuns
    from ai_platform_engineering.runtime.runs.replica_keeper import ReplicaKeeper, RunsOfReplica

    run_log = PostgresLog.open(PostgresAddress(url, SCHEMA))
    assert run_log.replicas is not None
    held_ids: set[str] = set()

    async def start(row: RunRow) -> None:
        held_ids.add(row.run_id)

    async def stop(run_id: str) -> None:
        held_ids.discard(run_id)

    def find_room() -> RoomForRuns:
        return RoomForRuns(in_all=room - len(held_ids), of_person=room)

    runs = RunsOfReplica(lambda: list(held_ids), held_ids.__contains__, find_room, start, stop)
    keeper = ReplicaKeeper(run_log, run_log.replicas, runs)
    print(f"ready {run_log.replicas.replica_id}", flush=True)
    await keeper.start()
    await asyncio.Event().wait()


def hold_workflows(url: str, name: str) -> None:
    """A DBOS executor, whose workflows last for ever."""
    dbos = importlib.import_module("dbos")
    config = {
        "name": APPLICATION,
        "system_database_url": url,
        "executor_id": name,
        "application_version": "1",
        "run_admin_server": False,
        "log_level": "ERROR",
    }
    dbos.DBOS(config=config)

    @dbos.DBOS.workflow(name="hold")  # type: ignore[untyped-decorator, unused-ignore]
    async def hold(number: int) -> None:
        await asyncio.sleep(3600)

    dbos.DBOS.launch()
    dbos.DBOS.register_queue(QUEUE)
    print(f"ready {name}", flush=True)
    for line in sys.stdin:
        dbos.DBOS._recover_pending_workflows([line.strip()])
    threading.Event().wait()


def enqueue_workflows(url: str, count: int) -> None:
    dbos = importlib.import_module("dbos")
    client = dbos.DBOSClient(system_database_url=url)
    for number in range(count):
        client.enqueue({"queue_name": QUEUE, "workflow_name": "hold", "app_version": "1"}, number)
    print("ready enqueued", flush=True)


async def save_tasks(url: str, count: int) -> None:
    """Tasks in the SDK's store for clusters: saves with an event, a lost race, and idle subscribers."""
    engines = importlib.import_module("sqlalchemy.ext.asyncio")
    cluster = importlib.import_module("a2a.server.cluster")
    types = importlib.import_module("a2a.types.a2a_pb2")
    context = importlib.import_module("a2a.server.context").ServerCallContext()
    engine = engines.create_async_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    store = cluster.VersionedDatabaseTaskStore(engine)
    await store.initialize()
    stream = cluster.DatabaseTaskEventStream(engine)
    await stream.initialize()
    print("ready", flush=True)
    missing = cluster.TaskVersion.MISSING
    await asyncio.to_thread(sys.stdin.readline)
    versions: dict[str, Any] = {}
    for _ in range(count):
        task = _make_task(types)
        arguments = {"event": task, "prev": None, "prev_version": missing, "context": context}
        versions[task.id] = (task, await store.save(task, **arguments))
    print(json.dumps("created"), flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    for task, version in versions.values():
        update = types.TaskStatusUpdateEvent(task_id=task.id, context_id=task.context_id, status=task.status)
        arguments = {"event": update, "prev": task, "prev_version": version, "context": context}
        await store.save(task, **arguments)
    print(json.dumps("saved"), flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    conflict = await _save_stale(store, cluster, versions, context)
    watchers = [
        asyncio.create_task(_watch(stream, task_id, missing)) for task_id in [*versions][:SUBSCRIBERS]
    ]
    await asyncio.sleep(POLLS_SECONDS)
    for watcher in watchers:
        watcher.cancel()
    print(json.dumps(conflict), flush=True)


def _make_task(types: Any) -> Any:
    status = types.TaskStatus(state=types.TaskState.TASK_STATE_WORKING)
    return types.Task(id=str(uuid.uuid4()), context_id=str(uuid.uuid4()), status=status)


async def _save_stale(store: Any, cluster: Any, versions: dict[str, Any], context: Any) -> str:
    """What a second writer is told that had read the task before the first one wrote."""
    task, version = next(iter(versions.values()))
    try:
        await store.save(task, event=None, prev=task, prev_version=version, context=context)
    except cluster.ConcurrentTaskModificationError as error:
        return type(error).__name__
    return "nothing"


async def _watch(stream: Any, task_id: str, after: Any) -> None:
    async for _ in stream.subscribe(task_id, after=after):
        pass


def main() -> None:
    kind, url, name, count = sys.argv[1:]
    if kind == "rows":
        asyncio.run(hold_rows(url, int(count)))
    elif kind == "dbos":
        hold_workflows(url, name)
    elif kind == "enqueue":
        enqueue_workflows(url, int(count))
    else:
        asyncio.run(save_tasks(url, int(count)))


if __name__ == "__main__":
    main()
