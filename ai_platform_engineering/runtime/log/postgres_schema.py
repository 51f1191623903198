"""The schema of the run log on PostgreSQL as migrations.

A released migration is never changed: a new one follows it. It only adds, so that processes of the version
before go on beside those of the new one: a new column has a default, and nothing that they use is removed or
renamed before no supported version uses it. A migration that they cannot stand raises `OLDEST_READER`.
"""

from collections.abc import Sequence

from ai_platform_engineering.databases.migrations import Migration, SharedTables

# How many migrations a program must know at least to go on with the newest tables.
OLDEST_READER = 1

# Ids are compared by code point, as SQLite does.
_KEY = 'TEXT COLLATE "C" NOT NULL'
_ROW_ID = "rowid BIGINT GENERATED ALWAYS AS IDENTITY"

_CHANGE_COUNT = (
    "INSERT INTO run_counts(owner, state, slot, number) VALUES ({row}.owner, {row}.state,"
    " pg_backend_pid() % 64, {change}) ON CONFLICT(owner, state, slot) DO UPDATE"
    " SET number = run_counts.number + excluded.number;"
)

# The tables are those of SQLite (`sqlite_schema`); times are microseconds since 1970, bodies are JSON.
# `runs` has room in its pages: the columns that each append changes are in no index.
_FIRST: Migration = (
    f"""CREATE TABLE runs(
        number BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, run_id {_KEY} UNIQUE, context_id {_KEY}, owner
        {_KEY}, principal TEXT NOT NULL, message_id {_KEY}, digest TEXT NOT NULL, lasting_id BOOLEAN NOT NULL,
        status TEXT NOT NULL, last_seq BIGINT NOT NULL, epoch BIGINT NOT NULL, created BIGINT NOT NULL,
        updated BIGINT NOT NULL, crashes BIGINT NOT NULL DEFAULT 0, attempt TEXT NOT NULL DEFAULT 'first',
        state {_KEY} DEFAULT 'working', state_at BIGINT NOT NULL DEFAULT 0, unfollowed_since BIGINT,
        holder TEXT COLLATE "C" NOT NULL DEFAULT '') WITH (fillfactor = 70)""",
    "CREATE INDEX runs_of_context ON runs(owner, context_id, number)",
    "CREATE INDEX runs_of_message ON runs(owner, message_id, number)",
    "CREATE INDEX runs_of_owner_by_id ON runs(owner, run_id)",
    "CREATE INDEX runs_unfinished ON runs(number) WHERE status <> 'ended'",
    "CREATE INDEX runs_ended ON runs(state_at) WHERE status = 'ended'",
    "CREATE INDEX runs_by_time ON runs(owner, state_at, run_id)",
    "CREATE INDEX runs_by_state ON runs(owner, state, state_at, run_id)",
    "CREATE INDEX runs_by_context ON runs(owner, context_id, state_at, run_id)",
    "CREATE INDEX runs_open ON runs(owner, context_id, number) WHERE status <> 'ended'",
    "CREATE INDEX runs_by_number ON runs(owner, number)",
    "CREATE INDEX runs_by_state_and_number ON runs(owner, state, number)",
    # The replica that works on a run or keeps it waiting; of a run without one, any replica may take it.
    "CREATE INDEX runs_of_holder ON runs(holder, number) WHERE status <> 'ended'",
    f"CREATE TABLE replicas(replica_id {_KEY} PRIMARY KEY, lease_until BIGINT NOT NULL)",
    f"CREATE TABLE timers(name {_KEY} PRIMARY KEY, next_at BIGINT NOT NULL)",
    # The fence of checkpoints: it fails when another process has taken the run over, and lets nobody do so
    # before the commit.
    """CREATE FUNCTION check_epoch(checked_run TEXT, checked_epoch BIGINT) RETURNS void LANGUAGE plpgsql
        SET search_path FROM CURRENT AS $$ BEGIN
        PERFORM 1 FROM runs WHERE run_id = checked_run AND epoch = checked_epoch FOR SHARE;
        IF NOT FOUND THEN RAISE EXCEPTION 'stale epoch' USING ERRCODE = 'CA001'; END IF; END $$""",
    f"""CREATE TABLE events(
        run_id {_KEY}, seq BIGINT NOT NULL, at BIGINT NOT NULL, kind TEXT NOT NULL, body TEXT NOT NULL,
        PRIMARY KEY(run_id, seq))""",
    f"""CREATE TABLE answers(
        {_ROW_ID}, owner {_KEY}, context_id {_KEY}, message_id {_KEY}, run_id {_KEY}, digest TEXT NOT NULL,
        before BIGINT NOT NULL, PRIMARY KEY(owner, context_id, message_id))""",
    "CREATE INDEX answers_of_run ON answers(run_id, rowid)",
    f"""CREATE TABLE markers(
        {_ROW_ID}, run_id {_KEY}, ns {_KEY}, checkpoint_id {_KEY}, after_seq BIGINT NOT NULL,
        PRIMARY KEY(run_id, ns, checkpoint_id))""",
    f"""CREATE TABLE orders(
        {_ROW_ID}, run_id {_KEY}, key {_KEY}, agent TEXT NOT NULL DEFAULT '', task_id TEXT NOT NULL,
        PRIMARY KEY(run_id, key))""",
    f"""CREATE TABLE journal(
        {_ROW_ID}, run_id {_KEY}, key {_KEY}, tool TEXT NOT NULL, arguments TEXT NOT NULL, state TEXT NOT
        NULL, epoch BIGINT NOT NULL, outcome TEXT NOT NULL, settled_by TEXT NOT NULL, PRIMARY
        KEY(run_id, key))""",
    f"""CREATE TABLE pending(
        {_ROW_ID}, request_id {_KEY} PRIMARY KEY, run_id {_KEY}, owner {_KEY} DEFAULT '', event TEXT NOT NULL,
        status TEXT NOT NULL, answer TEXT NOT NULL, answered_by TEXT NOT NULL, answered_at BIGINT, expires_at
        BIGINT)""",
    "CREATE INDEX pending_of_run ON pending(run_id, rowid)",
    "CREATE INDEX pending_claimed ON pending(run_id) WHERE status = 'claimed'",
    "CREATE INDEX pending_expiry ON pending(expires_at) WHERE status = 'pending'",
    "CREATE INDEX pending_of_owner ON pending(owner, rowid) WHERE status = 'pending'",
    f"CREATE TABLE forgotten(run_id {_KEY} PRIMARY KEY)",
    f"""CREATE TABLE allowances(
        {_ROW_ID}, owner {_KEY}, context_id {_KEY}, tool {_KEY}, allowed_by TEXT NOT NULL, at BIGINT NOT NULL,
        PRIMARY KEY(owner, context_id, tool))""",
    f"""CREATE TABLE feedback(
        {_ROW_ID}, run_id {_KEY}, said_by {_KEY}, score TEXT NOT NULL, reason TEXT, at BIGINT NOT NULL,
        PRIMARY KEY(run_id, said_by))""",
    f"""CREATE TABLE conversations(
        owner {_KEY}, context_id {_KEY}, title TEXT NOT NULL, search_text TEXT NOT NULL, created BIGINT NOT
        NULL, updated BIGINT NOT NULL, PRIMARY KEY(owner, context_id))""",
    "CREATE INDEX conversations_by_time ON conversations(owner, updated, context_id)",
    f"""CREATE TABLE push_configs(
        number BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, run_id {_KEY}, owner {_KEY}, config_id {_KEY},
        url TEXT NOT NULL, host TEXT NOT NULL, token TEXT NOT NULL, scheme TEXT NOT NULL, credentials TEXT NOT
        NULL, is_v03 BOOLEAN NOT NULL, shape TEXT NOT NULL, text_decisions BOOLEAN NOT NULL, notified_state
        TEXT NOT NULL, due_at BIGINT, claimed_by TEXT NOT NULL DEFAULT '', claimed_until
        BIGINT NOT NULL DEFAULT 0, UNIQUE(run_id, config_id))""",
    "CREATE INDEX push_configs_of_run ON push_configs(run_id, number)",
    "CREATE INDEX push_configs_due ON push_configs(due_at, number) WHERE due_at IS NOT NULL",
    "CREATE INDEX push_configs_of_owner ON push_configs(owner) WHERE due_at IS NOT NULL",
    """CREATE TABLE push_queue(
        config BIGINT NOT NULL, seq BIGINT NOT NULL, state TEXT NOT NULL, at BIGINT NOT NULL, attempts BIGINT
        NOT NULL DEFAULT 0, PRIMARY KEY(config, seq))""",
    f"""CREATE TABLE run_details(
        run_id {_KEY} PRIMARY KEY, question TEXT NOT NULL, search_text TEXT NOT NULL, usage TEXT)""",
    f"""CREATE TABLE run_agents(
        run_id {_KEY}, agent {_KEY}, owner {_KEY}, number BIGINT NOT NULL, PRIMARY KEY(run_id, agent))""",
    "CREATE INDEX runs_of_agent ON run_agents(owner, agent, number)",
    f"""CREATE TABLE shares(
        share_id {_KEY} PRIMARY KEY, owner {_KEY}, context_id {_KEY}, created BIGINT NOT NULL, expires_at
        BIGINT NOT NULL)""",
    "CREATE INDEX shares_of_owner ON shares(owner, context_id)",
    # How many runs there are. Each connection counts in a row of its own, so that writers do not wait for
    # each other; the sum counts.
    f"""CREATE TABLE run_counts(
        owner {_KEY}, state {_KEY}, slot INTEGER NOT NULL, number INTEGER NOT NULL,
        PRIMARY KEY(owner, state, slot)) WITH (fillfactor = 70)""",
    f"""CREATE FUNCTION count_run() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        IF TG_OP <> 'INSERT' THEN {_CHANGE_COUNT.format(row="OLD", change=-1)} END IF;
        IF TG_OP <> 'DELETE' THEN {_CHANGE_COUNT.format(row="NEW", change=1)} END IF;
        RETURN NULL; END $$""",
    "CREATE TRIGGER run_counted AFTER INSERT OR DELETE ON runs FOR EACH ROW EXECUTE FUNCTION count_run()",
    """CREATE TRIGGER run_changed_state AFTER UPDATE OF state ON runs FOR EACH ROW
        WHEN (OLD.state <> NEW.state) EXECUTE FUNCTION count_run()""",
)

# Tool results that are too long for messages. Each connection counts their bytes in a row of its own.
_COUNT_BYTES = (
    "INSERT INTO result_total(slot, bytes) VALUES (pg_backend_pid() % 64, {bytes})"
    " ON CONFLICT(slot) DO UPDATE SET bytes = result_total.bytes + excluded.bytes;"
)
_RESULTS: Migration = (
    f"""CREATE TABLE results(
        run_id {_KEY}, result_id {_KEY}, chars BIGINT NOT NULL, bytes BIGINT NOT NULL, at BIGINT NOT NULL,
        PRIMARY KEY(run_id, result_id))""",
    "CREATE INDEX results_by_id ON results(result_id)",
    "CREATE INDEX results_by_time ON results(at)",
    f"""CREATE TABLE result_chunks(
        {_ROW_ID}, run_id {_KEY}, result_id {_KEY}, number BIGINT NOT NULL, body BYTEA NOT NULL,
        PRIMARY KEY(run_id, result_id, number))""",
    "CREATE TABLE result_total(slot INTEGER PRIMARY KEY, bytes BIGINT NOT NULL)",
    f"""CREATE FUNCTION count_result() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        IF TG_OP = 'INSERT' THEN {_COUNT_BYTES.format(bytes="NEW.bytes")}
        ELSE {_COUNT_BYTES.format(bytes="-OLD.bytes")} END IF;
        RETURN NULL; END $$""",
    "CREATE TRIGGER result_counted AFTER INSERT OR DELETE ON results FOR EACH ROW"
    " EXECUTE FUNCTION count_result()",
)

# Tool servers that replicas run as processes, and those that wait for one to end.
_TOOL_SERVERS: Migration = tuple(
    f"CREATE TABLE {table}(slot_id {_KEY} PRIMARY KEY, replica_id {_KEY}, held_until BIGINT NOT NULL)"
    for table in ("tool_servers", "tool_server_waits")
)

MIGRATIONS: Sequence[Migration] = (_FIRST, _RESULTS, _TOOL_SERVERS)
TABLES = SharedTables(MIGRATIONS, OLDEST_READER)
