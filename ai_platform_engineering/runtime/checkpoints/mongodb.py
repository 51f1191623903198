"""Conversations in MongoDB; its saver and store block, so everything runs in threads."""

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

# The names of the saver itself: what an existing deployment stored is found.
_DATABASE = "checkpointing_db"
_COLLECTIONS = ("checkpoints", "checkpoint_writes")
_STORE = "store"


async def open_mongodb(choice: DatabaseChoice, terms: BackendOptions, stack: AsyncExitStack) -> OpenBackend:
    waiting = round(terms.timeout_seconds * 1000)
    try:
        if not choice.address.startswith(("mongodb://", "mongodb+srv://")):
            raise InvalidURI("no scheme")  # The client would take the whole text as the name of a host.
        client: pymongo.MongoClient[dict[str, Any]] = await asyncio.to_thread(
            pymongo.MongoClient,
            choice.address,
            serverSelectionTimeoutMS=waiting,
            connectTimeoutMS=waiting,
            tz_aware=True,
        )
    except (InvalidURI, ValueError):
        # Without the cause: its text may quote the address.
        raise ConfigurationError(f"{choice.variable} is not an address of a MongoDB server.") from None
    stack.push_async_callback(asyncio.to_thread, client.close)
    saver, store = await asyncio.to_thread(_open, client, terms)

    async def prune(thread_id: str, idle: bool) -> None:
        await asyncio.to_thread(_prune, saver, thread_id, idle)

    return OpenBackend(saver, store, prune)


def _open(
    client: pymongo.MongoClient[dict[str, Any]], terms: BackendOptions
) -> tuple[MongoDBSaver, MongoDBStore]:
    database = client.get_default_database(_DATABASE)
    seconds = terms.ttl_minutes * 60 if terms.ttl_minutes else None
    with pymongo.timeout(terms.timeout_seconds):
        client.admin.command("ping")
    _drop_other_ttl(database, seconds)
    saver = MongoDBSaver(client, database.name, *_COLLECTIONS, ttl=seconds)
    return saver, MongoDBStore(database[_STORE])


def _drop_other_ttl(database: Database[dict[str, Any]], seconds: int | None) -> None:
    """An index with another time to live cannot be made anew while the old one is there."""
    for name in _COLLECTIONS:
        for index in database[name].list_indexes():
            if "created_at" in index["key"] and index.get("expireAfterSeconds") != seconds:
                database[name].drop_index(index["name"])


def _prune(saver: MongoDBSaver, thread_id: str, idle: bool) -> None:
    collections = (saver.checkpoint_collection, saver.writes_collection)
    if idle:
        for collection in collections:
            collection.delete_many({"thread_id": thread_id, "checkpoint_ns": {"$ne": ""}})
    newest: dict[str, str] = {}
    for row in saver.checkpoint_collection.find(
        {"thread_id": thread_id}, {"checkpoint_ns": 1, "checkpoint_id": 1}
    ):
        namespace = row["checkpoint_ns"]
        newest[namespace] = max(newest.get(namespace, ""), row["checkpoint_id"])
    for namespace, last in newest.items():
        for collection in collections:
            collection.delete_many(
                {"thread_id": thread_id, "checkpoint_ns": namespace, "checkpoint_id": {"$lt": last}}
            )
