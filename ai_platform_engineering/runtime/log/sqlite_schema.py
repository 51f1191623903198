"""The schema of the database as migrations. A released migration is never changed: a new one follows it."""

from collections.abc import Sequence

from ai_platform_engineering.files.sqlite_file import Migration

# Times are microseconds since 1970, bodies are JSON. `holder` and `lease_until` are not used. Rows without
# another order are ordered by rowid.
_FIRST: Migration = (
    """CREATE TABLE runs(
        number INTEGER PRIMARY KEY, run_id TEXT NOT NULL UNIQUE, context_id TEXT NOT NULL, owner TEXT NOT
        NULL, principal TEXT NOT NULL, message_id TEXT NOT NULL, digest TEXT NOT NULL, lasting_id INTEGER NOT
        NULL, status TEXT NOT NULL, last_seq INTEGER NOT NULL, epoch INTEGER NOT NULL, created INTEGER NOT
        NULL, updated INTEGER NOT NULL, holder TEXT NOT NULL DEFAULT '', lease_until INTEGER)""",
    "CREATE INDEX runs_of_owner ON runs(owner)",
    "CREATE INDEX runs_of_context ON runs(owner, context_id)",
    "CREATE INDEX runs_of_message ON runs(owner, message_id)",
    "CREATE INDEX runs_unfinished ON runs(number) WHERE status <> 'ended'",
    "CREATE INDEX runs_ended ON runs(updated) WHERE status = 'ended'",
    """CREATE TABLE events(
        run_id TEXT NOT NULL, seq INTEGER NOT NULL, at INTEGER NOT NULL, kind TEXT NOT NULL, body TEXT NOT
        NULL, PRIMARY KEY(run_id, seq)) WITHOUT ROWID""",
    """CREATE TABLE answers(
        owner TEXT NOT NULL, context_id TEXT NOT NULL, message_id TEXT NOT NULL, run_id TEXT NOT NULL, digest
        TEXT NOT NULL, before INTEGER NOT NULL, PRIMARY KEY(owner, context_id, message_id))""",
    "CREATE INDEX answers_of_run ON answers(run_id)",
    """CREATE TABLE markers(
        run_id TEXT NOT NULL, ns TEXT NOT NULL, checkpoint_id TEXT NOT NULL, after_seq INTEGER NOT NULL,
        UNIQUE(run_id, ns, checkpoint_id))""",
    """CREATE TABLE orders(
        run_id TEXT NOT NULL, key TEXT NOT NULL, task_id TEXT NOT NULL, UNIQUE(run_id, key))""",
    """CREATE TABLE journal(
        run_id TEXT NOT NULL, key TEXT NOT NULL, tool TEXT NOT NULL, arguments TEXT NOT NULL, state TEXT NOT
        NULL, epoch INTEGER NOT NULL, outcome TEXT NOT NULL, settled_by TEXT NOT NULL, UNIQUE(run_id,
        key))""",
    """CREATE TABLE pending(
        request_id TEXT NOT NULL UNIQUE, run_id TEXT NOT NULL, event TEXT NOT NULL, status TEXT NOT NULL,
        answer TEXT NOT NULL, answered_by TEXT NOT NULL)""",
    "CREATE INDEX pending_of_run ON pending(run_id)",
    # Runs that readers do not find any more and whose rows are still being removed.
    "CREATE TABLE forgotten(run_id TEXT PRIMARY KEY) WITHOUT ROWID",
)

# Tools that need no approval, when a request was answered, and the agent of a remote task.
_ALLOWANCES: Migration = (
    "ALTER TABLE pending ADD COLUMN answered_at INTEGER",
    "CREATE INDEX pending_open ON pending(run_id) WHERE status = 'pending'",
    "ALTER TABLE orders ADD COLUMN agent TEXT NOT NULL DEFAULT ''",
    """CREATE TABLE allowances(
        owner TEXT NOT NULL, context_id TEXT NOT NULL, tool TEXT NOT NULL, allowed_by TEXT NOT NULL, at
        INTEGER NOT NULL, PRIMARY KEY(owner, context_id, tool))""",
)

_FEEDBACK: Migration = (
    """CREATE TABLE feedback(
        run_id TEXT NOT NULL, said_by TEXT NOT NULL, score TEXT NOT NULL, reason TEXT, at INTEGER NOT NULL,
        UNIQUE(run_id, said_by))""",
)

# How often a process died while it worked on a run, and how far the last one had come with it.
_CRASHES: Migration = (
    "ALTER TABLE runs ADD COLUMN crashes INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE runs ADD COLUMN attempt TEXT NOT NULL DEFAULT 'first'",
)

# The state that clients see, and since when: lists are ordered by it and read page by page.
_STATES: Migration = (
    "ALTER TABLE runs ADD COLUMN state TEXT NOT NULL DEFAULT 'working'",
    "ALTER TABLE runs ADD COLUMN state_at INTEGER NOT NULL DEFAULT 0",
    """UPDATE runs SET state_at = updated, state = CASE status WHEN 'paused' THEN 'input-required'
        WHEN 'running' THEN 'working' ELSE (SELECT CASE kind WHEN 'answered' THEN 'completed'
        WHEN 'cancelled' THEN 'canceled' ELSE 'failed' END
        FROM events WHERE events.run_id = runs.run_id AND seq = last_seq) END""",
    "DROP INDEX runs_of_owner",
    "CREATE INDEX runs_by_time ON runs(owner, state_at, run_id)",
    "CREATE INDEX runs_by_state ON runs(owner, state, state_at, run_id)",
    "CREATE INDEX runs_by_context ON runs(owner, context_id, state_at, run_id)",
    "ALTER TABLE pending ADD COLUMN expires_at INTEGER",
    """UPDATE pending SET expires_at =
        CAST((julianday(json_extract(event, '$.asked.expires_at')) - 2440587.5) * 86400000000 AS INTEGER)""",
    "CREATE INDEX pending_expiry ON pending(expires_at) WHERE status = 'pending'",
    "CREATE INDEX runs_open ON runs(owner, context_id) WHERE status <> 'ended'",
)

# Titles of conversations, and what a search for them looks at.
_CONVERSATIONS: Migration = (
    """CREATE TABLE conversations(
        owner TEXT NOT NULL, context_id TEXT NOT NULL, title TEXT NOT NULL, search_text TEXT NOT NULL, created
        INTEGER NOT NULL, updated INTEGER NOT NULL, PRIMARY KEY(owner, context_id)) WITHOUT ROWID""",
    "CREATE INDEX conversations_by_time ON conversations(owner, updated, context_id)",
    """INSERT INTO conversations(owner, context_id, title, search_text, created, updated)
        SELECT owner, context_id,
        substr(coalesce(json_extract(body, '$.parts[0].text'), '(no text)'), 1, 120),
        lower(substr(coalesce(json_extract(body, '$.parts[0].text'), ''), 1, 500)),
        min(created), max(created)
        FROM runs JOIN events ON events.run_id = runs.run_id AND seq = 1 GROUP BY owner, context_id""",
)

# Since when nobody follows a run.
_FOLLOWERS: Migration = ("ALTER TABLE runs ADD COLUMN unfollowed_since INTEGER",)

# What a list needs to cost one page: how many runs there are, and requests in the order of an owner's list.
_LISTS: Migration = (
    """CREATE TABLE run_counts(
        owner TEXT NOT NULL, state TEXT NOT NULL, number INTEGER NOT NULL, PRIMARY KEY(owner, state))
        WITHOUT ROWID""",
    "INSERT INTO run_counts SELECT owner, state, count(*) FROM runs GROUP BY owner, state",
    """CREATE TRIGGER run_created AFTER INSERT ON runs BEGIN
        INSERT INTO run_counts VALUES (NEW.owner, NEW.state, 1)
        ON CONFLICT DO UPDATE SET number = number + 1; END""",
    """CREATE TRIGGER run_deleted AFTER DELETE ON runs BEGIN
        UPDATE run_counts SET number = number - 1 WHERE owner = OLD.owner AND state = OLD.state; END""",
    """CREATE TRIGGER run_changed_state AFTER UPDATE OF state ON runs WHEN OLD.state <> NEW.state BEGIN
        UPDATE run_counts SET number = number - 1 WHERE owner = OLD.owner AND state = OLD.state;
        INSERT INTO run_counts VALUES (NEW.owner, NEW.state, 1)
        ON CONFLICT DO UPDATE SET number = number + 1; END""",
    "ALTER TABLE pending ADD COLUMN owner TEXT NOT NULL DEFAULT ''",
    """UPDATE pending SET owner = coalesce(
        (SELECT owner FROM runs WHERE runs.run_id = pending.run_id), '')""",
    "CREATE INDEX pending_of_owner ON pending(owner) WHERE status = 'pending'",
)

# Push notifications: the configs of runs, and what waits to be sent to each. The first in the queue of a
# config is due at `due_at`; `notified_state` is the last one that was queued.
_PUSH: Migration = (
    """CREATE TABLE push_configs(
        number INTEGER PRIMARY KEY AUTOINCREMENT, run_id TEXT NOT NULL, owner TEXT NOT NULL, config_id TEXT
        NOT NULL, url TEXT NOT NULL, host TEXT NOT NULL, token TEXT NOT NULL, scheme TEXT NOT NULL,
        credentials TEXT NOT NULL, is_v03 INTEGER NOT NULL, shape TEXT NOT NULL, text_decisions INTEGER NOT
        NULL, notified_state TEXT NOT NULL, due_at INTEGER, UNIQUE(run_id, config_id))""",
    "CREATE INDEX push_configs_due ON push_configs(due_at) WHERE due_at IS NOT NULL",
    "CREATE INDEX push_configs_of_owner ON push_configs(owner) WHERE due_at IS NOT NULL",
    """CREATE TABLE push_queue(
        config INTEGER NOT NULL, seq INTEGER NOT NULL, state TEXT NOT NULL, at INTEGER NOT NULL, attempts
        INTEGER NOT NULL DEFAULT 0, PRIMARY KEY(config, seq)) WITHOUT ROWID""",
)

# What lists show of runs; of older ones it is added in the background (`run_details.add_missing`).
_RUN_DETAILS: Migration = (
    """CREATE TABLE run_details(
        run_id TEXT PRIMARY KEY, question TEXT NOT NULL, search_text TEXT NOT NULL, usage TEXT) WITHOUT
        ROWID""",
    """CREATE TABLE run_agents(
        run_id TEXT NOT NULL, agent TEXT NOT NULL, owner TEXT NOT NULL, number INTEGER NOT NULL, PRIMARY
        KEY(run_id, agent)) WITHOUT ROWID""",
    "CREATE INDEX runs_of_agent ON run_agents(owner, agent, number)",
    "CREATE INDEX runs_by_number ON runs(owner, number)",
    "CREATE INDEX runs_by_state_and_number ON runs(owner, state, number)",
)

# Conversations that others may read; of a link's token only a digest.
_SHARES: Migration = (
    """CREATE TABLE shares(
        share_id TEXT PRIMARY KEY, owner TEXT NOT NULL, context_id TEXT NOT NULL, created INTEGER NOT NULL,
        expires_at INTEGER NOT NULL) WITHOUT ROWID""",
    "CREATE INDEX shares_of_owner ON shares(owner, context_id)",
)

# Tool results that are too long for messages, in compressed chunks. Chunks without a result are those of one
# that is being stored, or was when the process ended.
_RESULTS: Migration = (
    """CREATE TABLE results(
        run_id TEXT NOT NULL, result_id TEXT NOT NULL, chars INTEGER NOT NULL, bytes INTEGER NOT NULL, at
        INTEGER NOT NULL, PRIMARY KEY(run_id, result_id)) WITHOUT ROWID""",
    "CREATE INDEX results_by_id ON results(result_id)",
    "CREATE INDEX results_by_time ON results(at)",
    """CREATE TABLE result_chunks(
        run_id TEXT NOT NULL, result_id TEXT NOT NULL, number INTEGER NOT NULL, body BLOB NOT NULL,
        UNIQUE(run_id, result_id, number))""",
    "CREATE TABLE result_total(bytes INTEGER NOT NULL)",
    "INSERT INTO result_total VALUES (0)",
    """CREATE TRIGGER result_stored AFTER INSERT ON results BEGIN
        UPDATE result_total SET bytes = bytes + NEW.bytes; END""",
    """CREATE TRIGGER result_deleted AFTER DELETE ON results BEGIN
        UPDATE result_total SET bytes = bytes - OLD.bytes; END""",
)

MIGRATIONS: Sequence[Migration] = (
    _FIRST,
    _ALLOWANCES,
    _FEEDBACK,
    _CRASHES,
    _STATES,
    _CONVERSATIONS,
    _FOLLOWERS,
    _LISTS,
    _PUSH,
    _RUN_DETAILS,
    _SHARES,
    _RESULTS,
)
