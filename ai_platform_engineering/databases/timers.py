"""Timers in a database: what one of all processes does once in so many seconds."""

from ai_platform_engineering.databases.sql_connections import SqlConnection


def claim_timer(db: SqlConnection, now: int, name: str, seconds: float) -> bool:
    """Whether it is time, and this process is the one. The times in the table `timers` are microseconds."""
    claimed = db.execute(
        "INSERT INTO timers(name, next_at) VALUES (?1, ?2) ON CONFLICT(name) DO UPDATE"
        " SET next_at = excluded.next_at WHERE timers.next_at <= ?3",
        (name, now + round(seconds * 1_000_000), now),
    )
    return claimed.rowcount > 0
