"""A program that starts the supervisor in a fresh interpreter, asks it one question and prints, as JSON, what
was imported in the thread of its event loop from then on.

Its argument is the address of the model's server.
"""

import asyncio
import json
import sys
import threading
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

from tests.support.harness import supervisor


class ImportWitness:
    """A finder that finds nothing and writes down what is looked for."""

    def __init__(self) -> None:
        self.names: dict[str, list[str]] = {"loop": [], "elsewhere": []}
        self._loop_thread = threading.current_thread()

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        in_loop = threading.current_thread() is self._loop_thread
        self.names["loop" if in_loop else "elsewhere"].append(name)
        return None


async def main(variables: dict[str, str]) -> None:
    witness = ImportWitness()
    sys.meta_path.insert(0, witness)
    async with supervisor(None, env=variables) as client:
        first = (await client.http.get(client.url + "ready")).json()
        stream = await client.ask("Well?")
        later = (await client.http.get(client.url + "ready")).json()
    print(  # noqa: T201 - for the test that has started this
        json.dumps(
            {
                "answer": stream.answer,
                "ready": [report["components"]["model"] for report in (first, later)],
                **witness.names,
            }
        )
    )


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))
