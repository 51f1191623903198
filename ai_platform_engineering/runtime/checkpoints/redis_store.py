"""RedisStore: a LangGraph store on Redis or Valkey without modules."""

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from langgraph.store.base import BaseStore, GetOp, Item, ListNamespacesOp, Op, PutOp, Result, SearchOp

from ai_platform_engineering.runtime.checkpoints.store_search import Namespace, execute_in_memory

_NAMESPACES_KEY = "caipe:store"  # a sorted set with all namespaces
_LABEL_END = "\x1f"  # ends a label in a member of the sorted set
_DELETE = """redis.call('HDEL', KEYS[1], ARGV[1])
if redis.call('EXISTS', KEYS[1]) == 0 then redis.call('ZREM', KEYS[2], ARGV[2]) end"""


class RedisStore(BaseStore):
    """A store with a hash for each namespace; a search loads namespaces into an InMemoryStore.

    Namespaces match by whole labels, and errors of the server are raised."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        raise NotImplementedError("This store is asynchronous: use abatch and the methods that begin with a.")

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        return [await self._execute(op) for op in ops]

    async def _execute(self, op: Op) -> Result:
        match op:
            case GetOp():
                serialized = await self._client.hget(_hash_key(op.namespace), op.key)
                if serialized:
                    return _parse_item(op.namespace, op.key, serialized)
                return None
            case PutOp(value=None):
                keys = (_hash_key(op.namespace), _NAMESPACES_KEY)
                await self._client.eval(_DELETE, 2, *keys, op.key, _format_namespace(op.namespace))
                return None
            case PutOp():
                await self._put(op)
                return None
            case SearchOp():
                items: dict[Namespace, dict[str, Item]] = {}
                for namespace in await self._list_namespaces(op.namespace_prefix):
                    items[namespace] = await self._read_items(namespace)
                return await execute_in_memory(items, op)
            case ListNamespacesOp():
                namespaces = await self._list_namespaces(())
                return await execute_in_memory({namespace: {} for namespace in namespaces}, op)

    async def _put(self, op: PutOp) -> None:
        now = datetime.now(UTC).isoformat()
        key = _hash_key(op.namespace)
        created = now
        old_item = await self._client.hget(key, op.key)
        if old_item:
            created = json.loads(old_item)["created_at"]
        serialized = json.dumps({"value": op.value, "created_at": created, "updated_at": now})
        async with self._client.pipeline(transaction=True) as pipeline:
            pipeline.zadd(_NAMESPACES_KEY, {_format_namespace(op.namespace): 0})
            pipeline.hset(key, op.key, serialized)
            await pipeline.execute()

    async def _read_items(self, namespace: Namespace) -> dict[str, Item]:
        items: dict[str, Item] = {}
        for raw_key, serialized in (await self._client.hgetall(_hash_key(namespace))).items():
            key = raw_key.decode()
            items[key] = _parse_item(namespace, key, serialized)
        return items

    async def _list_namespaces(self, prefix: Namespace) -> list[Namespace]:
        first = b"-"
        last = b"+"
        if prefix:
            start = _format_namespace(prefix).encode()
            first = b"[" + start
            last = b"(" + start + b"\xff"
        members = await self._client.zrangebylex(_NAMESPACES_KEY, first, last)
        return [_parse_namespace(member.decode()) for member in members]


def _hash_key(namespace: Namespace) -> str:
    return f"{_NAMESPACES_KEY}:{_format_namespace(namespace)}"


def _format_namespace(namespace: Namespace) -> str:
    if any(_LABEL_END in label for label in namespace):
        raise ValueError("A label of a namespace holds a control character.")
    return "".join(label + _LABEL_END for label in namespace)


def _parse_namespace(text: str) -> Namespace:
    return tuple(text.removesuffix(_LABEL_END).split(_LABEL_END))


def _parse_item(namespace: Namespace, key: str, serialized: bytes) -> Item:
    return Item(namespace=namespace, key=key, **json.loads(serialized))
