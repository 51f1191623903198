"""A store on Redis or Valkey without modules: namespaces match whole labels, and an error is an error."""

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from langgraph.store.base import BaseStore, GetOp, Item, ListNamespacesOp, Op, PutOp, Result, SearchOp
from langgraph.store.memory import InMemoryStore

Namespace = tuple[str, ...]

_NAMESPACES = "caipe:store"
_END = "\x1f"  # ends a label in a member of the namespaces' sorted set
_DELETE = """redis.call('HDEL', KEYS[1], ARGV[1])
if redis.call('EXISTS', KEYS[1]) == 0 then redis.call('ZREM', KEYS[2], ARGV[2]) end"""


class RedisStore(BaseStore):
    """A hash per namespace; a search reads the namespaces below its prefix and lets the store in memory answer."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        raise NotImplementedError("This store is asynchronous: use abatch and the methods that begin with a.")

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        return [await self._do(op) for op in ops]

    async def _do(self, op: Op) -> Result:
        match op:
            case GetOp():
                stored = await self._client.hget(_key(op.namespace), op.key)
                if stored:
                    return _item(op.namespace, op.key, stored)
                return None
            case PutOp(value=None):
                await self._client.eval(
                    _DELETE, 2, _key(op.namespace), _NAMESPACES, op.key, _member(op.namespace)
                )
                return None
            case PutOp():
                await self._put(op)
                return None
            case SearchOp():
                below = await self._namespaces(op.namespace_prefix)
                return await _answer({namespace: await self._items(namespace) for namespace in below}, op)
            case ListNamespacesOp():
                return await _answer({namespace: {} for namespace in await self._namespaces(())}, op)

    async def _put(self, op: PutOp) -> None:
        now = datetime.now(UTC).isoformat()
        before = await self._client.hget(_key(op.namespace), op.key)
        created = json.loads(before)["created_at"] if before else now
        async with self._client.pipeline(transaction=True) as together:
            together.zadd(_NAMESPACES, {_member(op.namespace): 0})
            together.hset(
                _key(op.namespace),
                op.key,
                json.dumps({"value": op.value, "created_at": created, "updated_at": now}),
            )
            await together.execute()

    async def _items(self, namespace: Namespace) -> dict[str, Item]:
        stored = await self._client.hgetall(_key(namespace))
        return {key.decode(): _item(namespace, key.decode(), value) for key, value in stored.items()}

    async def _namespaces(self, prefix: Namespace) -> list[Namespace]:
        start = _member(prefix).encode()
        first, last = (b"[" + start, b"(" + start + b"\xff") if prefix else (b"-", b"+")
        members = await self._client.zrangebylex(_NAMESPACES, first, last)
        return [tuple(member.decode().removesuffix(_END).split(_END)) for member in members]


def _key(namespace: Namespace) -> str:
    return f"{_NAMESPACES}:{_member(namespace)}"


def _member(namespace: Namespace) -> str:
    if any(_END in label for label in namespace):
        raise ValueError("A label of a namespace holds a control character.")
    return "".join(label + _END for label in namespace)


def _item(namespace: Namespace, key: str, stored: bytes) -> Item:
    return Item(namespace=namespace, key=key, **json.loads(stored))


async def _answer(items: dict[Namespace, dict[str, Item]], op: SearchOp | ListNamespacesOp) -> Result:
    memory = InMemoryStore()
    memory._data.update(items)
    return (await memory.abatch([op]))[0]
