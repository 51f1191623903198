"""What other processes tell through PostgreSQL's NOTIFY: one connection of this process listens."""

import contextlib
import json
import logging
import os
import socket
import threading
from collections.abc import Callable

import psycopg
from psycopg import sql

from ai_platform_engineering.databases.database_failures import explain_failure
from ai_platform_engineering.databases.postgres_database import PostgresAddress
from ai_platform_engineering.databases.sql_connections import Note

log = logging.getLogger(__name__)

_CHECK_SECONDS = 10.0  # of silence, after which the connection is tried
_RETRY_SECONDS = 0.5


class PostgresListener:
    """A thread that receives notes; while it has no connection, `generation` is None.

    Nothing that is committed during one generation is missed. `receive` and `change` are called in the
    thread: with the notes of others, and after the connection is made or lost.
    """

    def __init__(
        self,
        address: PostgresAddress,
        sender: str,
        receive: Callable[[list[Note]], None],
        change: Callable[[], None],
    ) -> None:
        """`sender`: this process, whose own notes are not received."""
        self._address = address
        self._sender = sender
        self._receive = receive
        self._change = change
        self._count = 0
        self.generation: int | None = None
        self._connection: psycopg.Connection[object] | None = None
        self._thread: threading.Thread | None = None
        self._closing = threading.Event()

    def start(self) -> None:
        """Begins to listen, once."""
        if self._thread is None and not self._closing.is_set():
            self._thread = threading.Thread(
                target=self._run, name=f"listener of {self._address.schema}", daemon=True
            )
            self._thread.start()

    def close(self) -> None:
        self._closing.set()
        if self._thread is not None:
            self.interrupt()
            self._thread.join()

    def interrupt(self) -> None:
        """Cuts the connection off; the thread notices at once."""
        connection = self._connection
        if connection is None:
            return
        with (
            contextlib.suppress(OSError, psycopg.Error),
            socket.socket(fileno=os.dup(connection.fileno())) as duplicate,
        ):
            duplicate.shutdown(socket.SHUT_RDWR)

    def _run(self) -> None:
        while not self._closing.is_set():
            try:
                self._listen()
            except psycopg.Error as error:
                if not self._closing.is_set() and self.generation is not None:
                    log.warning("events of other processes come later: %s", explain_failure(error))
            finally:
                self._end_generation()
            self._closing.wait(_RETRY_SECONDS)

    def _listen(self) -> None:
        connection = self._address.connect().raw
        self._connection = connection
        with connection:
            connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(self._address.schema)))
            self._count += 1
            self.generation = self._count
            self._change()
            while not self._closing.is_set():
                payloads = [
                    notify.payload for notify in connection.notifies(timeout=_CHECK_SECONDS, stop_after=1)
                ]
                if not payloads:
                    connection.execute(b"SELECT 1")
                notes = [note for payload in payloads for note in self._read(payload)]
                if notes:
                    self._receive(notes)

    def _read(self, payload: str) -> list[Note]:
        sender, *notes = json.loads(payload)
        if sender == self._sender:
            return []
        return list(notes)

    def _end_generation(self) -> None:
        self._connection = None
        was_listening = self.generation is not None
        self.generation = None
        if was_listening and not self._closing.is_set():
            self._change()
