"""Uploaded files: in a folder for each datasource, which is read like any other folder, or in the database
that several servers share."""

import asyncio
import contextlib
import shutil
import time
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

from ai_platform_engineering.core.errors import Refused
from ai_platform_engineering.core.private_files import create_private_folder
from ai_platform_engineering.knowledge_bases.results import compute_document_id
from ai_platform_engineering.knowledge_bases.sources.folder_source import looks_binary
from ai_platform_engineering.knowledge_bases.sources.left_out_files import (
    explain_left_out_content,
    explain_left_out_name,
)
from ai_platform_engineering.knowledge_bases.stores.knowledge_store import Datasource
from ai_platform_engineering.knowledge_bases.stores.upload_store import (
    UPLOAD,
    UploadLimits,
    UploadStore,
    describe_no_room,
)

_INCOMING = ".incoming"  # no name of a datasource: files that are not complete yet
_ABANDONED_SECONDS = 3600  # after which a file that is not complete is of a process that died
_MAX_AT_ONCE = 4
_MAX_NAME_BYTES = 200
_WRITE_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Uploads:
    """The uploaded files: below `folder`, or in the `store` that this server shares with others.

    `lock` orders changes of their folders, `slots` bounds how many are received at once."""

    folder: Path
    limits: UploadLimits
    store: UploadStore | None = None
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_MAX_AT_ONCE))

    def folder_of(self, datasource: str) -> Path:
        return self.folder / datasource

    def has(self, datasource: Datasource) -> bool:
        """Whether the documents of a datasource were uploaded here."""
        if self.store is not None and datasource.kind == UPLOAD:
            return True
        return datasource.location == str(self.folder_of(datasource.name).resolve())

    async def receive(self, name: str, chunks: AsyncIterator[bytes]) -> Path:
        """Writes what arrives to a file that nobody reads yet. Raises Refused for one that is too large, is
        empty, or would not be read."""
        check_file_name(name)
        path = self.folder / _INCOMING / uuid.uuid4().hex
        async with self.slots:
            if self.store is not None:
                await self.store.check_room(self.limits)
            else:
                await asyncio.to_thread(self._check_room)
            try:
                await self._write(path, chunks)
                await asyncio.to_thread(_check_content, name, path)
            except BaseException:
                path.unlink(missing_ok=True)  # not in a thread: this may be a cancellation
                raise
        return path

    async def _write(self, path: Path, chunks: AsyncIterator[bytes]) -> None:
        await asyncio.to_thread(create_private_folder, path.parent)
        received = 0
        buffer = bytearray()
        file = await asyncio.to_thread(path.open, "xb")
        try:
            async for chunk in chunks:
                received += len(chunk)
                if received > self.limits.file_bytes:
                    raise Refused(describe_file_limit(self.limits.file_bytes))
                buffer += chunk
                if len(buffer) >= _WRITE_BYTES:
                    await asyncio.to_thread(file.write, bytes(buffer))
                    buffer.clear()
            await asyncio.to_thread(file.write, bytes(buffer))
        finally:
            await asyncio.to_thread(file.close)
        if not received:
            raise Refused("The file is empty.")

    def put(self, received: Path, datasource: str, name: str) -> None:
        """Moves a complete file to the others of its datasource; one of the same name is replaced."""
        folder = self.folder_of(datasource)
        create_private_folder(folder)
        received.replace(folder / name)

    def clear(self, datasource: str) -> None:
        """Removes the files of a datasource from the folder."""
        shutil.rmtree(self.folder_of(datasource), ignore_errors=True)

    def remove(self, datasource: str, document_id: str) -> bool:
        """Removes the file of a document from the folder. False when there is none."""
        for path in self.folder_of(datasource).iterdir():
            if compute_document_id(datasource, path.name) == document_id:
                path.unlink()
                return True
        return False

    async def share_folder(self, store: UploadStore, datasource: str, title: str) -> None:
        """Moves files that a version before has left in the folder into the database."""
        folder = self.folder_of(datasource)
        if not await asyncio.to_thread(folder.is_dir):
            return
        stored = await store.list_marks(datasource)
        for path in await asyncio.to_thread(lambda: sorted(folder.iterdir())):
            if path.name not in stored:
                content = await asyncio.to_thread(path.read_bytes)
                await store.put(datasource, title, path.name, content, self.limits)
            await asyncio.to_thread(path.unlink)
        await asyncio.to_thread(folder.rmdir)

    def _check_room(self) -> None:
        """Raises Refused."""
        count = 0
        size = 0
        abandoned_before = time.time() - _ABANDONED_SECONDS
        for path in self.folder.glob("*/*"):
            with contextlib.suppress(FileNotFoundError):  # it was removed or moved just now
                status = path.stat()
                if path.parent.name == _INCOMING and status.st_mtime < abandoned_before:
                    path.unlink()
                    continue
                count += 1
                size += status.st_size
        if count >= self.limits.files or size >= self.limits.total_bytes:
            raise Refused(describe_no_room(count, size))


def describe_file_limit(file_bytes: int) -> str:
    return f"The file is larger than {file_bytes} bytes (RAG_UPLOAD_MAX_BYTES)."


def check_file_name(name: str) -> None:
    """Raises Refused for what is no plain name of a file, or of one that would not be read."""
    is_plain = name.isprintable() and "/" not in name and "\\" not in name and not name.startswith(".")
    if not name.strip() or not is_plain or len(name.encode(errors="replace")) > _MAX_NAME_BYTES:
        raise Refused(
            f"Give the file's name as ?name=: at most {_MAX_NAME_BYTES} bytes, without a folder, and not "
            "beginning with a dot."
        )
    reason = explain_left_out_name(name)
    if reason:
        raise Refused(f"{name} is not read. {reason}")


def _check_content(name: str, path: Path) -> None:
    """Raises Refused for what a folder's files are left out for."""
    content = path.read_bytes()
    if looks_binary(name, content):
        raise Refused(f"{name} is neither text nor a document that can be read.")
    reason = explain_left_out_content(name, content)
    if reason:
        raise Refused(f"{name} is not read. {reason}")
