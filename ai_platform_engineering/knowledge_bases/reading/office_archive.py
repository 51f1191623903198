"""The zip files of office documents: their parts as XML, with limits on what they unpack to."""

import io
import posixpath
import zlib
from collections.abc import Iterator, Mapping
from zipfile import BadZipFile, LargeZipFile, ZipFile

from lxml import etree

from ai_platform_engineering.knowledge_bases.documents import UnreadableDocument
from ai_platform_engineering.knowledge_bases.reading.office_signatures import ENCRYPTED
from ai_platform_engineering.knowledge_bases.reading.reading_limits import (
    MAX_PART_BYTES,
    MAX_PARTS,
    MAX_UNPACKED_BYTES,
)

_OPEN_DOCUMENT_TEXT = b"application/vnd.oasis.opendocument.text"
_KIND_BY_FOLDER = {"word": "docx", "ppt": "pptx", "xl": "xlsx"}
_FAILURES = (BadZipFile, LargeZipFile, zlib.error, EOFError, OSError, NotImplementedError, RuntimeError)

# Part names by the ids of relationships, and the last word of each relationship's type.
Relationships = Mapping[str, tuple[str, str]]


class OfficeArchive:
    """The parts of an office document. Raises UnreadableDocument for what is broken, encrypted or unpacks to
    too much."""

    def __init__(self, content: bytes) -> None:
        try:
            self._zip = ZipFile(io.BytesIO(content))
        except _FAILURES:
            raise UnreadableDocument("The document is corrupt: its zip archive is incomplete.") from None
        parts = self._zip.infolist()
        unpacked = sum(part.file_size for part in parts)
        if len(parts) > MAX_PARTS or unpacked > MAX_UNPACKED_BYTES:
            raise UnreadableDocument(
                f"The document decompresses to more than {MAX_UNPACKED_BYTES // 1_000_000} MB "
                f"or {MAX_PARTS:,} parts."
            )
        if any(part.flag_bits & 1 for part in parts):
            raise UnreadableDocument(ENCRYPTED)
        self._names = {part.filename for part in parts}

    def detect_kind(self) -> str | None:
        """docx, pptx, xlsx or odt."""
        if "mimetype" in self._names and self.read("mimetype").strip() == _OPEN_DOCUMENT_TEXT:
            if b"encryption-data" in self.read("META-INF/manifest.xml"):
                raise UnreadableDocument(ENCRYPTED)
            return "odt"
        main_part = self.find_main_part()
        if not main_part.endswith(".xml"):  # xlsb is binary
            return None
        return _KIND_BY_FOLDER.get(main_part.partition("/")[0])

    def find_main_part(self) -> str:
        """The part with the document of an OOXML file, or nothing; its name differs between programs."""
        for target, relation in self.read_relationships("").values():
            if relation == "officeDocument":
                return target
        return ""

    def read(self, name: str) -> bytes:
        """The bytes of a part; none if there is no such part."""
        if name not in self._names:
            return b""
        if self._zip.getinfo(name).file_size > MAX_PART_BYTES:
            raise UnreadableDocument(
                f"A part of the document decompresses to more than {MAX_PART_BYTES // 1_000_000} MB."
            )
        try:
            return self._zip.read(name)
        except _FAILURES:
            raise UnreadableDocument("The document is corrupt: part of it cannot be decompressed.") from None

    def read_xml(self, name: str) -> etree._Element | None:
        """The root of a part; None for one that is not there or is no XML."""
        content = self.read(name)
        if not content:
            return None
        parser = etree.XMLParser(
            resolve_entities=False, no_network=True, load_dtd=False, remove_comments=True, remove_pis=True
        )
        try:
            return etree.fromstring(content, parser)
        except etree.XMLSyntaxError:
            return None

    def read_main_xml(self, name: str) -> etree._Element:
        root = self.read_xml(name)
        if root is None:
            raise UnreadableDocument("The document is corrupt: its text cannot be read.")
        return root

    def read_relationships(self, part: str) -> Relationships:
        folder, name = posixpath.split(part)
        root = self.read_xml(posixpath.join(folder, "_rels", f"{name}.rels"))
        relationships: dict[str, tuple[str, str]] = {}
        if root is None:
            return relationships
        for node in root:
            target = node.get("Target") or ""
            if node.get("TargetMode") != "External":
                target = posixpath.normpath(posixpath.join("/", folder, target)).lstrip("/")
            relationships[node.get("Id") or ""] = (target, (node.get("Type") or "").rpartition("/")[2])
        return relationships

    def find_related(self, part: str, relation: str) -> Iterator[str]:
        """The parts that a part is related to in this way."""
        for target, kind in self.read_relationships(part).values():
            if kind == relation:
                yield target

    def read_title(self, name: str) -> str:
        """The title in a part with metadata."""
        root = self.read_xml(name)
        if root is None:
            return ""
        return next((node.text or "" for node in root.iter("{*}title")), "")


def local_name(node: etree._Element) -> str:
    """The name of an element without its namespace: strict and transitional files differ only there."""
    return str(node.tag).rpartition("}")[2]


def attribute(node: etree._Element | None, name: str) -> str:
    """An attribute, whatever its namespace."""
    if node is None:
        return ""
    for key, value in node.attrib.items():
        if str(key).rpartition("}")[2] == name:
            return str(value)
    return ""


def child(node: etree._Element | None, *path: str) -> etree._Element | None:
    """The first child with this name, then its first child, and so on."""
    for name in path:
        if node is None:
            return None
        node = next(node.iterchildren(f"{{*}}{name}"), None)
    return node
