"""The tables of the knowledge base in PostgreSQL, in a schema of their own."""

import asyncio

from psycopg import AsyncConnection, Error
from psycopg.rows import DictRow, dict_row
from psycopg.sql import SQL, Identifier, Literal
from psycopg_pool import AsyncConnectionPool

from ai_platform_engineering.core.errors import ConfigurationError
from ai_platform_engineering.databases.database_choice import DatabaseChoice
from ai_platform_engineering.databases.database_failures import unavailable
from ai_platform_engineering.databases.migrations import Migration, SharedTables
from ai_platform_engineering.databases.postgres_check import MIN_CONNECT_SECONDS, check_postgres
from ai_platform_engineering.databases.postgres_database import PostgresAddress, migrate

Connection = AsyncConnection[DictRow]
Pool = AsyncConnectionPool[Connection]

SCHEMA = "caipe_kb"
_MAX_CONNECTIONS = 6
_SETUP_LOCK = 0x_CA1_9E_06
_STUCK_MILLISECONDS = 10_000
_DROP_LOCK_MILLISECONDS = 500  # less than PostgreSQL takes to see a deadlock and to end one of both

# Databases of earlier versions have some of the first tables and columns, and no number of a version.
# `lexemes` has the number of chunks of each word, `totals` the number of all chunks; both without those that
# are `uncounted`.
_FIRST: Migration = (
    """CREATE TABLE IF NOT EXISTS datasources(
        name text PRIMARY KEY, location text NOT NULL, kind text NOT NULL, title text NOT NULL,
        options jsonb NOT NULL,
        refreshed timestamptz)""",
    """CREATE TABLE IF NOT EXISTS jobs(
        number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, job_id text NOT NULL UNIQUE,
        datasource text NOT NULL, state text NOT NULL,
        total integer, done integer NOT NULL, skipped integer NOT NULL, removed integer NOT NULL,
        failed jsonb NOT NULL,
        problem text NOT NULL, created timestamptz, ended timestamptz)""",
    """CREATE TABLE IF NOT EXISTS documents(
        number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, document_id text NOT NULL UNIQUE,
        datasource text NOT NULL,
        address text NOT NULL COLLATE "C", title text NOT NULL, kind text NOT NULL, digest text NOT NULL,
        mark text NOT NULL, link text,
        changed timestamptz, text text NOT NULL)""",
    "CREATE INDEX IF NOT EXISTS documents_of_datasource ON documents(datasource, address)",
    """CREATE TABLE IF NOT EXISTS chunks(
        number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        document bigint NOT NULL REFERENCES documents ON DELETE CASCADE,
        ordinal integer NOT NULL, headings jsonb NOT NULL, start integer NOT NULL, stop integer NOT NULL,
        text text NOT NULL,
        words tsvector NOT NULL)""",
    "CREATE INDEX IF NOT EXISTS chunks_of_document ON chunks(document, ordinal)",
    "CREATE INDEX IF NOT EXISTS chunks_by_word ON chunks USING gin(words) WITH (fastupdate = off)",
    "CREATE TABLE IF NOT EXISTS uncounted(chunk bigint PRIMARY KEY REFERENCES chunks ON DELETE CASCADE)",
    """CREATE TABLE IF NOT EXISTS lexemes(word text COLLATE "C" PRIMARY KEY, chunks bigint NOT NULL)
        WITH (fillfactor = 70)""",
    "CREATE TABLE IF NOT EXISTS totals(one boolean PRIMARY KEY DEFAULT true CHECK (one), chunks bigint NOT "
    "NULL)",
    "INSERT INTO totals(chunks) VALUES (0) ON CONFLICT DO NOTHING",
    """CREATE TABLE IF NOT EXISTS models(
        model integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text NOT NULL UNIQUE,
        dimensions integer NOT NULL)""",
    # Columns that databases of earlier versions lack.
    "ALTER TABLE documents ADD COLUMN IF NOT EXISTS missing text NOT NULL DEFAULT ''",
    "ALTER TABLE jobs ADD COLUMN IF NOT EXISTS cut jsonb NOT NULL DEFAULT '[]'",
    # What was there before answers: it counts as complete.
    "ALTER TABLE models ADD COLUMN IF NOT EXISTS complete boolean NOT NULL DEFAULT true",
    "ALTER TABLE models ADD COLUMN IF NOT EXISTS used timestamptz NOT NULL DEFAULT now()",
    "ALTER TABLE datasources ADD COLUMN IF NOT EXISTS cursor text NOT NULL DEFAULT ''",
    "ALTER TABLE documents ADD COLUMN IF NOT EXISTS visible_to text[]",
    "ALTER TABLE documents ADD COLUMN IF NOT EXISTS metadata jsonb NOT NULL DEFAULT '{}'",
    "ALTER TABLE datasources ADD COLUMN IF NOT EXISTS visible_to text[]",
    "ALTER TABLE datasources ADD COLUMN IF NOT EXISTS refresh_every integer",
    "ALTER TABLE datasources ADD COLUMN IF NOT EXISTS refresh_due timestamptz",
    "ALTER TABLE datasources ADD COLUMN IF NOT EXISTS refresh_failures integer NOT NULL DEFAULT 0",
    """CREATE TABLE IF NOT EXISTS group_members(
        member text NOT NULL, group_name text NOT NULL, PRIMARY KEY (member, group_name))""",
)
# Who works on a job, and until when; `epoch` counts who had it, `attempts` since it stored something.
_CLAIMS: Migration = (
    "ALTER TABLE jobs ADD COLUMN holder text NOT NULL DEFAULT ''",
    "ALTER TABLE jobs ADD COLUMN lease_until timestamptz",
    "ALTER TABLE jobs ADD COLUMN epoch bigint NOT NULL DEFAULT 0",
    "ALTER TABLE jobs ADD COLUMN attempts integer NOT NULL DEFAULT 0",
    "CREATE INDEX jobs_unfinished ON jobs(datasource, number) WHERE ended IS NULL",
)
_UPLOADS: Migration = (
    """CREATE TABLE uploads(
        datasource text NOT NULL, name text COLLATE "C" NOT NULL, content bytea NOT NULL,
        size bigint NOT NULL, changed timestamptz NOT NULL, PRIMARY KEY (datasource, name))""",
)
_EMBEDDING_LEASES: Migration = (
    """CREATE TABLE embedding_leases(
        model text PRIMARY KEY, holder text NOT NULL, lease_until timestamptz NOT NULL)""",
)
# Migrations only add. A new column of `datasources` would break processes of the version before, which read
# all its columns.
TABLES = SharedTables((_FIRST, _CLAIMS, _UPLOADS, _EMBEDDING_LEASES))


async def check_database(database: DatabaseChoice, seconds: float) -> None:
    """Tries the database with a real call; raises ConfigurationError and DatabaseUnavailable."""
    await check_postgres(
        database.address, variable=database.variable, label=_label(database), seconds=seconds
    )


async def open_pool(database: DatabaseChoice, seconds: float) -> Pool:
    """A pool of connections to a database that has the tables.

    `seconds`: how long its first answer may take. Raises ConfigurationError and DatabaseUnavailable."""
    await check_database(database, seconds)
    pool: Pool = AsyncConnectionPool(
        database.address,
        min_size=1,
        max_size=_MAX_CONNECTIONS,
        open=False,
        name="knowledge",
        check=AsyncConnectionPool.check_connection,
        configure=_set_search_path,
        kwargs={
            "autocommit": True,
            "row_factory": dict_row,
            "connect_timeout": max(MIN_CONNECT_SECONDS, round(seconds)),
        },
    )
    try:
        await pool.open(wait=True, timeout=seconds)
        await asyncio.to_thread(migrate, PostgresAddress(database.address, SCHEMA, seconds), TABLES)
        async with pool.connection() as connection:
            await _create_extension(connection)
    except Error as error:  # a timeout of the pool is one of them
        await pool.close()
        raise unavailable(_label(database), error, f"Check {database.variable}.") from None
    except BaseException:
        await pool.close()
        raise
    return pool


def _label(database: DatabaseChoice) -> str:
    return f"The knowledge base in {database.label}"


async def ensure_vector_table(connection: Connection, model: str, dimensions: int) -> Identifier:
    """The table of a model's vectors, created if it is new; they all have the same dimensions."""
    insert = (
        "INSERT INTO models(name, dimensions, complete) VALUES (%s, %s, false) "
        "ON CONFLICT (name) DO NOTHING RETURNING model"
    )
    row = await (await connection.execute(insert, (model, dimensions))).fetchone()
    if row is not None:
        await _create_vector_table(connection, row["model"], dimensions)
    vector_table = await find_vector_table(connection, model)
    assert vector_table is not None, "it was just inserted"
    table, table_dimensions = vector_table
    if table_dimensions != dimensions:
        raise ConfigurationError(
            f"The embedding model {model} used to return {table_dimensions} dimensions "
            f"and now returns {dimensions}. "
            "Set EMBEDDINGS_MODEL to the model that the server runs."
        )
    return table


async def find_vector_table(connection: Connection, model: str) -> tuple[Identifier, int] | None:
    """The table of a model's vectors, and their dimensions; it is not purged until the transaction ends."""
    row = await (
        await connection.execute(
            "SELECT model, dimensions FROM models WHERE name = %s FOR KEY SHARE", (model,)
        )
    ).fetchone()
    if row is None:
        return None
    return _table_name(row["model"]), row["dimensions"]


async def list_vector_tables(connection: Connection) -> list[Identifier]:
    """They are not purged until the transaction ends."""
    query = "SELECT model FROM models ORDER BY model FOR KEY SHARE"
    rows = await (await connection.execute(query)).fetchall()
    return [_table_name(row["model"]) for row in rows]


async def drop_model(connection: Connection, model: int) -> None:
    """Deletes the vectors of a model. Raises psycopg's LockNotAvailable when others use them: both might wait
    for each other."""
    await connection.execute(SQL("SET LOCAL lock_timeout = {}").format(_DROP_LOCK_MILLISECONDS))
    await connection.execute("DELETE FROM models WHERE model = %s", (model,))
    await connection.execute(SQL("DROP TABLE {}").format(_table_name(model)))


def _table_name(model: int) -> Identifier:
    return Identifier(f"vectors_{model}")


async def _create_vector_table(connection: Connection, model: int, dimensions: int) -> None:
    table = _table_name(model)
    index = Identifier(f"vectors_{model}_near")
    columns = SQL(
        "chunk bigint PRIMARY KEY REFERENCES chunks ON DELETE CASCADE, vector halfvec({}) NOT NULL"
    ).format(Literal(dimensions))
    await connection.execute(SQL("CREATE TABLE {}({})").format(table, columns))
    await connection.execute(
        SQL("CREATE INDEX {} ON {} USING hnsw(vector halfvec_cosine_ops)").format(index, table)
    )


async def _set_search_path(connection: Connection) -> None:
    """Finds our tables, and the vector type in whatever schema the extension is."""
    row = await (
        await connection.execute(
            "SELECT nspname FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace "
            "WHERE extname = 'vector'"
        )
    ).fetchone()
    extension_schema = "public"
    if row is not None:
        extension_schema = row["nspname"]
    search_path = SQL("SET search_path = {}, {}").format(Identifier(SCHEMA), Identifier(extension_schema))
    await connection.execute(search_path)
    # A process that is stopped in the middle must not hold its locks for longer.
    await connection.execute(SQL("SET idle_in_transaction_session_timeout = {}").format(_STUCK_MILLISECONDS))


async def _create_extension(connection: Connection) -> None:
    try:
        async with connection.transaction():
            await connection.execute("SELECT pg_advisory_xact_lock(%s)", (_SETUP_LOCK,))
            await connection.execute("CREATE EXTENSION IF NOT EXISTS vector WITH SCHEMA public")
    except Error:
        raise ConfigurationError(
            "The database of RAG_DATABASE_URL needs the extension pgvector (0.8 or newer). "
            "Install it on the server, and run `CREATE EXTENSION vector` as a user who may."
        ) from None
    await _set_search_path(connection)
