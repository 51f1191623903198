"""Searches of our stores: they load the items of a namespace, and LangGraph's own store in memory filters
them."""

from langgraph.store.base import Item, ListNamespacesOp, Result, SearchOp
from langgraph.store.memory import InMemoryStore

Namespace = tuple[str, ...]


async def execute_in_memory(
    items: dict[Namespace, dict[str, Item]], op: SearchOp | ListNamespacesOp
) -> Result:
    """The result of an operation on these items alone, by namespace and key."""
    memory = InMemoryStore()
    memory._data.update(items)
    return (await memory.abatch([op]))[0]
