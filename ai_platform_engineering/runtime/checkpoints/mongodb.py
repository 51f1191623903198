"""Checkpoints and store in MongoDB; its saver and store are synchronous, so they run in threads."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pymongo
from langgraph.checkpoint.mongodb import MongoDBSaver
from langgraph.store.mongodb import MongoDBStore
from pymongo.database import Database
from pymongo.errors import InvalidURI, PyMongoError

from ai_platform_engineering.core.errors import ConfigurationError
from ai_platform_engineering.databases.database_choice import DatabaseChoice
from ai_platform_engineering.databases.database_failures import unavailable
from ai_platform_engineering.runtime.checkpoints.backend import (
    BackendOptions,
    CheckpointBackend,
    OpenBackend,
)
from ai_platform_engineering.runtime.checkpoints.serializer import CheckpointSerializer

Client = pymongo.MongoClient[dict[str, Any]]

# The default names of the saver, so that the data of existing deployments is found.
_DATABASE = "checkpointing_db"
_COLLECTIONS = ("checkpoints", "checkpoint_writes")
_STORE = "store"

_SETUP_SECONDS = 30.0  # a thread cannot be cancelled: what runs in one has a limit of its own
_SOCKET_SECONDS = 30.0


async def check_mongodb(choice: DatabaseChoice, options: BackendOptions) -> None:
    async with _connect(choice, options):
        pass


async def open_mongodb(choice: DatabaseChoice, options: BackendOptions, stack: AsyncExitStack) -> OpenBackend:
    client = await stack.enter_async_context(_connect(choice, options))
    saver, store = await asyncio.to_thread(_open_saver_and_store, client, options)

    async def prune(thread_id: str, idle: bool) -> None:
        await asyncio.to_thread(_prune, saver, thread_id, idle)

    return OpenBackend(saver, store, prune)


@asynccontextmanager
async def _connect(choice: DatabaseChoice, options: BackendOptions) -> AsyncIterator[Client]:
    """A client of a server that has answered."""
    timeout_ms = round(options.timeout_seconds * 1000)
    try:
        if not choice.address.startswith(("mongodb://", "mongodb+srv://")):
            raise InvalidURI("no scheme")  # the client would take the whole text for a host name
        client: Client = await asyncio.to_thread(
            pymongo.MongoClient,
            choice.address,
            serverSelectionTimeoutMS=timeout_ms,
            connectTimeoutMS=timeout_ms,
            socketTimeoutMS=round(_SOCKET_SECONDS * 1000),
            tz_aware=True,
        )
    except (InvalidURI, ValueError):
        # Without the cause: its text may quote the address.
        raise ConfigurationError(f"{choice.variable} is not an address of a MongoDB server.") from None
    except PyMongoError as error:  # the host of a mongodb+srv address is looked up at once
        raise unavailable(choice.label, error, f"Check {choice.variable}.") from None
    try:
        try:
            await asyncio.to_thread(_ping, client, options)
        except PyMongoError as error:
            raise unavailable(choice.label, error, f"Check {choice.variable}.") from None
        yield client
    finally:
        await asyncio.to_thread(client.close)


def _ping(client: Client, options: BackendOptions) -> None:
    """A call that the server answers only to whom it knows; a bare ping it answers to everybody."""
    database = client.get_default_database(_DATABASE)
    with pymongo.timeout(options.timeout_seconds):
        database[_COLLECTIONS[0]].find_one({}, {"_id": 1})


def _open_saver_and_store(client: Client, options: BackendOptions) -> tuple[MongoDBSaver, MongoDBStore]:
    database = client.get_default_database(_DATABASE)
    ttl_seconds = options.ttl_minutes * 60 if options.ttl_minutes else None
    with pymongo.timeout(_SETUP_SECONDS):
        _drop_other_ttl_indexes(database, ttl_seconds)
        saver = MongoDBSaver(
            client, database.name, *_COLLECTIONS, ttl=ttl_seconds, serde=CheckpointSerializer()
        )
        return saver, MongoDBStore(database[_STORE])


def _drop_other_ttl_indexes(database: Database[dict[str, Any]], ttl_seconds: int | None) -> None:
    """Drops indexes with another time to live: while they exist, the new ones cannot be created."""
    for name in _COLLECTIONS:
        for index in database[name].list_indexes():
            if "created_at" in index["key"] and index.get("expireAfterSeconds") != ttl_seconds:
                database[name].drop_index(index["name"])


def _prune(saver: MongoDBSaver, thread_id: str, idle: bool) -> None:
    collections = (saver.checkpoint_collection, saver.writes_collection)
    if idle:
        for collection in collections:
            collection.delete_many({"thread_id": thread_id, "checkpoint_ns": {"$ne": ""}})
    newest_ids: dict[str, str] = {}
    for row in saver.checkpoint_collection.find(
        {"thread_id": thread_id}, {"checkpoint_ns": 1, "checkpoint_id": 1}
    ):
        namespace = row["checkpoint_ns"]
        newest_ids[namespace] = max(newest_ids.get(namespace, ""), row["checkpoint_id"])
    for namespace, newest_id in newest_ids.items():
        for collection in collections:
            collection.delete_many(
                {"thread_id": thread_id, "checkpoint_ns": namespace, "checkpoint_id": {"$lt": newest_id}}
            )


MONGODB = CheckpointBackend(check_mongodb, open_mongodb)
