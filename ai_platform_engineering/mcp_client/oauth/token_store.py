"""The SQLite file with the logins of people at MCP servers; tokens and client secrets are encrypted in it."""

import asyncio
import hashlib
import logging
import sqlite3
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from ai_platform_engineering.core.errors import Refused
from ai_platform_engineering.core.oauth_settings import OAuthSettings
from ai_platform_engineering.files.sqlite_file import Migration, moment, open_database
from ai_platform_engineering.mcp_client.oauth.stored_login import (
    PendingSignIn,
    RegisteredClient,
    StoredLogin,
    StoredModel,
)
from ai_platform_engineering.mcp_client.oauth.token_cipher import TokenCipher, UnreadableSecret

log = logging.getLogger(__name__)

_FILE = "mcp-oauth.db"
_BUSY_SECONDS = 10.0
_MAX_CLIENTS = 1_000
_PRAGMAS = ("secure_delete = ON",)
_TOO_MANY_PENDING = "Too many sign-ins are not finished. Finish one, or try again in a few minutes."
_TOO_MANY_LOGINS = "No more sign-ins can be stored (MCP_OAUTH_MAX_LOGINS={limit})."

MIGRATIONS: tuple[Migration, ...] = (
    (
        """CREATE TABLE logins (
            owner TEXT NOT NULL, resource TEXT NOT NULL, sealed BLOB NOT NULL, version INTEGER NOT NULL,
            signed_in_at INTEGER NOT NULL, refresh_until INTEGER NOT NULL DEFAULT 0,
            PRIMARY KEY (owner, resource)) WITHOUT ROWID""",
        """CREATE TABLE pending_sign_ins (
            state TEXT PRIMARY KEY, owner TEXT NOT NULL, sealed BLOB NOT NULL, ends_at INTEGER NOT NULL)""",
        "CREATE INDEX pending_by_owner ON pending_sign_ins (owner)",
        """CREATE TABLE clients (
            issuer TEXT NOT NULL, redirect_uri TEXT NOT NULL, sealed BLOB NOT NULL, saved_at INTEGER NOT NULL,
            PRIMARY KEY (issuer, redirect_uri)) WITHOUT ROWID""",
    ),
)

ModelT = TypeVar("ModelT", bound=StoredModel)
ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True)
class LoginRow:
    """A stored login: whose it is, for which server, and since when; without its tokens."""

    owner: str
    resource: str
    signed_in_at: datetime


@dataclass(frozen=True, slots=True)
class VersionedLogin:
    """A login with the version of its row, for a compare-and-set."""

    login: StoredLogin
    version: int


class TokenStore:
    """Logins, registrations and sign-ins under way. The file is opened when it is first used."""

    def __init__(self, home: Path, settings: OAuthSettings) -> None:
        self._home = home
        self._settings = settings
        self._db: sqlite3.Connection | None = None
        self._cipher: TokenCipher | None = None
        self._lock = threading.Lock()

    # --- logins ---------------------------------------------------------------------------------------------

    async def find_login(self, owner: str, resource: str) -> VersionedLogin | None:
        return await self._read(lambda db: self._find_login(db, owner, resource))

    async def save_login(self, owner: str, resource: str, login: StoredLogin) -> None:
        """Replaces the login of that owner and server. Raises Refused when there are too many."""

        def save(db: sqlite3.Connection) -> None:
            sealed = self._seal(login, f"login {owner}\n{resource}")
            count: int = db.execute(
                "SELECT count(*) FROM logins WHERE NOT (owner = ? AND resource = ?)", (owner, resource)
            ).fetchone()[0]
            if count >= self._settings.max_logins:
                raise Refused(_TOO_MANY_LOGINS.format(limit=self._settings.max_logins))
            db.execute(
                "INSERT INTO logins (owner, resource, sealed, version, signed_in_at) VALUES (?, ?, ?, 1, ?)"
                " ON CONFLICT DO UPDATE SET sealed = excluded.sealed, version = version + 1,"
                " signed_in_at = excluded.signed_in_at, refresh_until = 0",
                (owner, resource, sealed, _now()),
            )

        await self._run(save)

    async def replace_login(self, owner: str, resource: str, login: StoredLogin, version: int) -> bool:
        """Stores refreshed tokens, if the login is still the one that they come from."""

        def replace(db: sqlite3.Connection) -> bool:
            sealed = self._seal(login, f"login {owner}\n{resource}")
            cursor = db.execute(
                "UPDATE logins SET sealed = ?, version = version + 1, refresh_until = 0"
                " WHERE owner = ? AND resource = ? AND version = ?",
                (sealed, owner, resource, version),
            )
            return cursor.rowcount == 1

        return await self._run(replace)

    async def delete_login(self, owner: str, resource: str, version: int | None = None) -> bool:
        """`version`: only this one; somebody may have signed in again."""

        def delete(db: sqlite3.Connection) -> bool:
            cursor = db.execute(
                "DELETE FROM logins WHERE owner = ? AND resource = ? AND version = coalesce(?, version)",
                (owner, resource, version),
            )
            return cursor.rowcount == 1

        return await self._run(delete)

    async def list_logins(self, resource: str, limit: int = 100) -> list[LoginRow]:
        """The logins at a server, the newest first."""

        def select(db: sqlite3.Connection) -> list[LoginRow]:
            rows = db.execute(
                "SELECT owner, resource, signed_in_at FROM logins WHERE resource = ?"
                " ORDER BY signed_in_at DESC LIMIT ?",
                (resource, limit),
            )
            return [LoginRow(row["owner"], row["resource"], moment(row["signed_in_at"])) for row in rows]

        return await self._read(select)

    async def find_row(self, owner: str, resource: str) -> LoginRow | None:
        """The login of an owner without its tokens."""

        def select(db: sqlite3.Connection) -> LoginRow | None:
            row = db.execute(
                "SELECT signed_in_at FROM logins WHERE owner = ? AND resource = ?", (owner, resource)
            ).fetchone()
            if row is None:
                return None
            return LoginRow(owner, resource, moment(row["signed_in_at"]))

        return await self._read(select)

    async def claim_refresh(self, owner: str, resource: str, version: int, seconds: float) -> bool:
        """Takes the right to refresh this version; of all processes one at a time has it, for so long."""

        def claim(db: sqlite3.Connection) -> bool:
            now = _now()
            cursor = db.execute(
                "UPDATE logins SET refresh_until = ? WHERE owner = ? AND resource = ? AND version = ?"
                " AND refresh_until < ?",
                (now + int(seconds * 1_000_000), owner, resource, version, now),
            )
            return cursor.rowcount == 1

        return await self._run(claim)

    async def release_refresh(self, owner: str, resource: str, version: int) -> None:
        def release(db: sqlite3.Connection) -> None:
            db.execute(
                "UPDATE logins SET refresh_until = 0 WHERE owner = ? AND resource = ? AND version = ?",
                (owner, resource, version),
            )

        await self._run(release)

    # --- sign-ins under way ---------------------------------------------------------------------------------

    async def add_pending(self, state: str, owner: str, pending: PendingSignIn) -> None:
        """Raises Refused when too many are not finished."""

        def add(db: sqlite3.Connection) -> None:
            now = _now()
            db.execute("DELETE FROM pending_sign_ins WHERE ends_at <= ?", (now,))
            total, own = db.execute(
                "SELECT count(*), count(*) FILTER (WHERE owner = ?) FROM pending_sign_ins", (owner,)
            ).fetchone()
            settings = self._settings
            if total >= settings.max_pending or own >= settings.max_pending_per_user:
                raise Refused(_TOO_MANY_PENDING)
            ends_at = now + int(settings.sign_in_seconds * 1_000_000)
            row = _hash_state(state)
            db.execute(
                "INSERT INTO pending_sign_ins VALUES (?, ?, ?, ?)",
                (row, owner, self._seal(pending, f"pending {owner}\n{row}"), ends_at),
            )

        await self._run(add)

    async def find_pending(self, state: str) -> tuple[str, PendingSignIn] | None:
        """The owner of a sign-in under way, and the sign-in; None when it is unknown, finished or too old."""
        return await self._read(lambda db: self._find_pending(db, _hash_state(state)))

    async def take_pending(self, state: str) -> tuple[str, PendingSignIn] | None:
        """As `find_pending`, and removes it: each is finished at most once."""

        def take(db: sqlite3.Connection) -> tuple[str, PendingSignIn] | None:
            row = _hash_state(state)
            pending = self._find_pending(db, row)
            cursor = db.execute("DELETE FROM pending_sign_ins WHERE state = ?", (row,))
            if cursor.rowcount != 1:
                return None
            return pending

        return await self._run(take)

    # --- registrations --------------------------------------------------------------------------------------

    async def find_client(self, issuer: str, redirect_uri: str) -> RegisteredClient | None:
        def find(db: sqlite3.Connection) -> RegisteredClient | None:
            row = db.execute(
                "SELECT sealed FROM clients WHERE issuer = ? AND redirect_uri = ?", (issuer, redirect_uri)
            ).fetchone()
            if row is None:
                return None
            return self._open(RegisteredClient, row["sealed"], f"client {issuer}\n{redirect_uri}")

        return await self._read(find)

    async def save_client(self, redirect_uri: str, client: RegisteredClient) -> None:
        def save(db: sqlite3.Connection) -> None:
            sealed = self._seal(client, f"client {client.issuer}\n{redirect_uri}")
            db.execute(
                "INSERT OR REPLACE INTO clients VALUES (?, ?, ?, ?)",
                (client.issuer, redirect_uri, sealed, _now()),
            )
            db.execute(
                "DELETE FROM clients WHERE saved_at < (SELECT min(saved_at) FROM"
                " (SELECT saved_at FROM clients ORDER BY saved_at DESC LIMIT ?))",
                (_MAX_CLIENTS,),
            )

        await self._run(save)

    async def delete_client(self, client: RegisteredClient) -> None:
        """Deletes a client that its authorization server has lost; others at that server stay."""

        def delete(db: sqlite3.Connection) -> None:
            query = "SELECT redirect_uri, sealed FROM clients WHERE issuer = ?"
            for redirect_uri, sealed in db.execute(query, (client.issuer,)).fetchall():
                stored = self._open(RegisteredClient, sealed, f"client {client.issuer}\n{redirect_uri}")
                if stored is None or stored.client_id == client.client_id:
                    key = (client.issuer, redirect_uri)
                    db.execute("DELETE FROM clients WHERE issuer = ? AND redirect_uri = ?", key)

        await self._run(delete)

    # --- the file -------------------------------------------------------------------------------------------

    async def aclose(self) -> None:
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        with self._lock:
            if self._db is not None:
                self._db.close()
                self._db = None

    async def _run(self, work: Callable[[sqlite3.Connection], ResultT]) -> ResultT:
        """Runs the work in a thread and in a transaction that writes."""
        return await asyncio.to_thread(self._run_in_transaction, work, "BEGIN IMMEDIATE")

    async def _read(self, work: Callable[[sqlite3.Connection], ResultT]) -> ResultT:
        """Runs the work in a thread and in a transaction that reads: it waits for no other one that does."""
        return await asyncio.to_thread(self._run_in_transaction, work, "BEGIN")

    def _run_in_transaction(self, work: Callable[[sqlite3.Connection], ResultT], begin: str) -> ResultT:
        with self._lock:
            if self._db is None:
                path = self._home / _FILE
                self._db = open_database(path, MIGRATIONS, busy_seconds=_BUSY_SECONDS, pragmas=_PRAGMAS)
            db = self._db
            db.execute(begin)
            try:
                result = work(db)
                db.execute("COMMIT")
            except BaseException:
                if db.in_transaction:
                    db.execute("ROLLBACK")
                raise
            return result

    def _find_login(self, db: sqlite3.Connection, owner: str, resource: str) -> VersionedLogin | None:
        row = db.execute(
            "SELECT sealed, version FROM logins WHERE owner = ? AND resource = ?", (owner, resource)
        ).fetchone()
        if row is None:
            return None
        login = self._open(StoredLogin, row["sealed"], f"login {owner}\n{resource}")
        if login is None:
            return None
        return VersionedLogin(login, row["version"])

    def _find_pending(self, db: sqlite3.Connection, row: str) -> tuple[str, PendingSignIn] | None:
        stored_row = db.execute(
            "SELECT owner, sealed FROM pending_sign_ins WHERE state = ? AND ends_at > ?", (row, _now())
        ).fetchone()
        if stored_row is None:
            return None
        owner = stored_row["owner"]
        pending = self._open(PendingSignIn, stored_row["sealed"], f"pending {owner}\n{row}")
        if pending is None:
            return None
        return owner, pending

    def _seal(self, value: StoredModel, row: str) -> bytes:
        return self._get_cipher().encrypt(value.model_dump_json().encode(), row)

    def _open(self, model: type[ModelT], sealed: bytes, row: str) -> ModelT | None:
        """The content of a row; None, with a warning, when it cannot be decrypted or read."""
        try:
            return model.model_validate_json(self._get_cipher().decrypt(sealed, row))
        except (UnreadableSecret, ValidationError):
            log.warning(
                "a stored sign-in cannot be decrypted: the key is not the one that it was stored with;"
                " the person has to sign in again"
            )
            return None

    def _get_cipher(self) -> TokenCipher:
        if self._cipher is None:
            self._cipher = TokenCipher.from_settings(self._settings.encryption_key, self._home)
        return self._cipher


def _hash_state(state: str) -> str:
    """A state as it is stored: whoever reads the file cannot finish a sign-in."""
    return hashlib.sha256(state.encode()).hexdigest()


def _now() -> int:
    return int(time.time() * 1_000_000)
