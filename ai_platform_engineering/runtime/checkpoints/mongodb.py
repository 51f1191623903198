"""Checkpoints and store in MongoDB; its saver and store are synchronous, so they run in threads."""

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pymongo
from langgraph.checkpoint.mongodb import MongoDBSaver
from langgraph.store.mongodb import MongoDBStore
from pymongo.database import Database
from pymongo.errors import InvalidURI

from ai_platform_engineering.core.errors import ConfigurationError
from ai_platform_engineering.runtime.checkpoints.backend import BackendOptions, OpenBackend
from ai_platform_engineering.runtime.checkpoints.database_choice import DatabaseChoice

# The default names of the saver, so that the data of existing deployments is found.
_DATABASE = "checkpointing_db"
_COLLECTIONS = ("checkpoints", "checkpoint_writes")
_STORE = "store"


async def open_mongodb(choice: DatabaseChoice, options: BackendOptions, stack: AsyncExitStack) -> OpenBackend:
    timeout_ms = round(options.timeout_seconds * 1000)
    try:
        if not choice.address.startswith(("mongodb://", "mongodb+srv://")):
            raise InvalidURI("no scheme")  # the client would take the whole text for a host name
        client: pymongo.MongoClient[dict[str, Any]] = await asyncio.to_thread(
            pymongo.MongoClient,
            choice.address,
            serverSelectionTimeoutMS=timeout_ms,
            connectTimeoutMS=timeout_ms,
            tz_aware=True,
        )
    except (InvalidURI, ValueError):
        # Without the cause: its text may quote the address.
        raise ConfigurationError(f"{choice.variable} is not an address of a MongoDB server.") from None
    stack.push_async_callback(asyncio.to_thread, client.close)
    saver, store = await asyncio.to_thread(_open_saver_and_store, client, options)

    async def prune(thread_id: str, idle: bool) -> None:
        await asyncio.to_thread(_prune, saver, thread_id, idle)

    return OpenBackend(saver, store, prune)


def _open_saver_and_store(
    client: pymongo.MongoClient[dict[str, Any]], options: BackendOptions
) -> tuple[MongoDBSaver, MongoDBStore]:
    database = client.get_default_database(_DATABASE)
    ttl_seconds = options.ttl_minutes * 60 if options.ttl_minutes else None
    with pymongo.timeout(options.timeout_seconds):
        client.admin.command("ping")
    _drop_other_ttl_indexes(database, ttl_seconds)
    saver = MongoDBSaver(client, database.name, *_COLLECTIONS, ttl=ttl_seconds)
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
