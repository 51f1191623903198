"""The interface of uploaded files in a database that several processes share: any of them can read them."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from ai_platform_engineering.knowledge_bases.stores.job_store import IngestJob

UPLOAD = "upload"  # the kind of a datasource of such files, and how its location begins


@dataclass(frozen=True, slots=True)
class UploadLimits:
    """Limits of uploads: the size of one file, and the size and number of all of them."""

    file_bytes: int
    total_bytes: int
    files: int


@dataclass(frozen=True, slots=True)
class UploadedFile:
    """The content of an uploaded file, and when it came."""

    content: bytes
    changed: datetime


class UploadStore(Protocol):
    """Uploaded files by datasource and name. They leave with their datasource."""

    async def check_room(self, limits: UploadLimits) -> None:
        """Raises Refused when there are as many files, or bytes, as there may be."""
        ...

    async def put(
        self, datasource: str, title: str, name: str, content: bytes, limits: UploadLimits
    ) -> IngestJob:
        """Adds a file, or replaces the one of this name, and in the same transaction its datasource if there
        is none yet, and the job that reads the file. Raises Refused."""
        ...

    async def remove(self, datasource: str, document_id: str) -> IngestJob | None:
        """Removes the file of a document, and adds the job that removes the document; None when there is no
        such file."""
        ...

    async def list_marks(self, datasource: str) -> Mapping[str, str]:
        """A mark of each file, by name: it changes whenever the file is put."""
        ...

    async def read(self, datasource: str, name: str) -> UploadedFile | None: ...


def describe_no_room(files: int, total_bytes: int) -> str:
    """Why no more files are taken, for a person."""
    return (
        f"There is no room for more uploads: {files} files with {total_bytes} bytes "
        "(RAG_UPLOADS_MAX_FILES, RAG_UPLOADS_MAX_BYTES). Delete some first."
    )
