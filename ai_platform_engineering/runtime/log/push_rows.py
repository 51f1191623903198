"""Push configs and their queues as rows: the writes inside a transaction, and how rows are read."""

from collections.abc import Collection

from ai_platform_engineering.a2a.client_shape import ClientShape
from ai_platform_engineering.databases.sql_connections import Row, SqlConnection, row_lock
from ai_platform_engineering.files.sqlite_file import moment
from ai_platform_engineering.runtime.log.log_rows import RunRow
from ai_platform_engineering.runtime.log.push_rules import check_config_count, is_news
from ai_platform_engineering.runtime.log.push_store import DueNotification, PushConfig, PushLimits, PushTarget

_UPSERT = (
    "INSERT INTO push_configs(run_id, owner, config_id, url, host, token, scheme, credentials, is_v03, shape,"
    " text_decisions, notified_state) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
    " ON CONFLICT(run_id, config_id) DO UPDATE SET url = excluded.url, host = excluded.host,"
    " token = excluded.token, scheme = excluded.scheme, credentials = excluded.credentials,"
    " is_v03 = excluded.is_v03, shape = excluded.shape, text_decisions = excluded.text_decisions RETURNING *"
)
_COUNT_OF_OWNER = (
    "SELECT count(*) FROM push_configs JOIN push_queue ON config = number"
    " WHERE owner = ? AND due_at IS NOT NULL"
)
_DUE = (
    "SELECT push_configs.*, seq, state, at, attempts FROM push_configs"
    " JOIN push_queue ON config = number AND seq = (SELECT min(seq) FROM push_queue WHERE config = number)"
    " WHERE due_at <= ? AND number NOT IN ({configs}) AND host NOT IN ({hosts}){more}"
    " ORDER BY due_at, number LIMIT ?"
)


def read_config(row: Row) -> PushConfig:
    target = PushTarget(
        url=row["url"],
        host=row["host"],
        config_id=row["config_id"],
        token=row["token"],
        scheme=row["scheme"],
        credentials=row["credentials"],
        is_v03=bool(row["is_v03"]),
        shape=ClientShape(row["shape"], bool(row["text_decisions"])),
    )
    return PushConfig(row["number"], row["run_id"], target)


def insert(db: SqlConnection, run: RunRow, target: PushTarget, notified_state: str) -> Row:
    """Stores a config; of one with the same id the queue stays."""
    target = target.for_run(run.run_id)
    values = (
        run.run_id,
        run.owner,
        target.config_id,
        target.url,
        target.host,
        target.token,
        target.scheme,
        target.credentials,
        target.is_v03,
        target.shape.name,
        target.shape.text_decisions,
        notified_state,
    )
    [row] = db.execute(_UPSERT, values).fetchall()
    stored: Row = row
    return stored


def store(
    db: SqlConnection, now: int, run: RunRow, target: PushTarget, notify_after: int, limits: PushLimits
) -> PushConfig:
    """Stores a config of a run that exists. Raises Refused when it has too many."""
    config_ids = db.execute("SELECT config_id FROM push_configs WHERE run_id = ?", (run.run_id,)).fetchall()
    check_config_count({config_id for (config_id,) in config_ids}, target.for_run(run.run_id), limits)
    row = insert(db, run, target, run.state if run.status == "running" else "")
    if is_news(run, row["notified_state"], notify_after):
        _queue(db, now, run, row["number"], limits)
    return read_config(row)


def queue_state(db: SqlConnection, now: int, run: RunRow, limits: PushLimits) -> int:
    """Queues the state of the run for its configs that have not had it; returns how many were not queued."""
    query = f"SELECT number FROM push_configs WHERE run_id = ? AND notified_state <> ?{row_lock(db)}"  # noqa: S608
    rows = db.execute(query, (run.run_id, run.state)).fetchall()
    return sum(not _queue(db, now, run, number, limits) for (number,) in rows)


def _queue(db: SqlConnection, now: int, run: RunRow, number: int, limits: PushLimits) -> bool:
    """Queues the state, without the oldest of too many for one config. False when too many wait in all."""
    [total] = db.execute("SELECT count(*) FROM push_queue").fetchone()
    [of_owner] = db.execute(_COUNT_OF_OWNER, (run.owner,)).fetchone()
    if total >= limits.queue or of_owner >= limits.queue_per_owner:
        return False
    db.execute(
        "INSERT INTO push_queue(config, seq, state, at) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
        (number, run.last_seq, run.state, now),
    )
    db.execute(
        "UPDATE push_configs SET notified_state = ?, due_at = coalesce(due_at, ?) WHERE number = ?",
        (run.state, now, number),
    )
    db.execute(
        "DELETE FROM push_queue WHERE config = ?1 AND seq IN"
        " (SELECT seq FROM push_queue WHERE config = ?1 ORDER BY seq DESC LIMIT 1000000000 OFFSET ?2)",
        (number, limits.queue_per_config),
    )
    return True


def delete(db: SqlConnection, run_id: str, config_id: str) -> bool:
    rows = db.execute(
        "DELETE FROM push_configs WHERE run_id = ? AND config_id = ? RETURNING number", (run_id, config_id)
    ).fetchall()
    db.executemany("DELETE FROM push_queue WHERE config = ?", [(row["number"],) for row in rows])
    return bool(rows)


def remove(db: SqlConnection, now: int, number: int, seq: int) -> None:
    # A state that is queued at the same moment waits for this lock, and makes the config due again.
    db.execute(f"SELECT 1 FROM push_configs WHERE number = ?{row_lock(db)}", (number,))  # noqa: S608
    db.execute("DELETE FROM push_queue WHERE config = ? AND seq = ?", (number, seq))
    has_more = db.execute("SELECT 1 FROM push_queue WHERE config = ? LIMIT 1", (number,)).fetchone()
    db.execute(
        "UPDATE push_configs SET due_at = ? WHERE number = ?", (now if has_more is not None else None, number)
    )


def postpone(db: SqlConnection, number: int, seq: int, until: int) -> None:
    db.execute("UPDATE push_queue SET attempts = attempts + 1 WHERE config = ? AND seq = ?", (number, seq))
    db.execute("UPDATE push_configs SET due_at = ? WHERE number = ?", (until, number))


def _placeholders(values: Collection[object]) -> str:
    """As many as there are values."""
    return ", ".join("?" * len(values))


def find_due(
    db: SqlConnection,
    now: int,
    busy_configs: Collection[int],
    busy_hosts: Collection[str],
    limit: int,
    more: str = "",
) -> list[DueNotification]:
    """`more`: a condition for the configs."""
    numbers = (0, *busy_configs)  # no config has this number: SQL knows no empty list
    hosts = ("", *busy_hosts)
    query = _DUE.format(configs=_placeholders(numbers), hosts=_placeholders(hosts), more=more)
    due: list[DueNotification] = []
    for row in db.execute(query, (now, *numbers, *hosts, limit)):
        notification = DueNotification(
            read_config(row), row["seq"], row["state"], moment(row["at"]), row["attempts"]
        )
        due.append(notification)
    return due
