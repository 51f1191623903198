"""What kind of document it is: the content decides, then the file name and the media type."""

import re
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from ai_platform_engineering.knowledge_bases.documents import RawDocument, UnreadableDocument
from ai_platform_engineering.knowledge_bases.reading.languages import DATA_FORMATS, detect_language
from ai_platform_engineering.knowledge_bases.reading.office_signatures import (
    explain_old_office,
    is_old_office,
    is_zip,
)
from ai_platform_engineering.knowledge_bases.reading.reading_limits import (
    MAX_IN_PROCESS_BYTES,
    MAX_IN_PROCESS_RST_BYTES,
    MAX_TEXT_CHARS,
)
from ai_platform_engineering.knowledge_bases.reading.text_cleanup import decode_text, to_single_line


@dataclass(frozen=True, slots=True)
class DetectedDocument:
    """A document and the kind that was detected. `text` is empty for what is not text: PDF, office files."""

    raw: RawDocument
    kind: str
    text: str
    name: str  # of the file, for a document that has no title
    language: str = ""
    missing_chars: int = 0  # at the end of `text`


_SIGNATURES = (
    (b"\x1f\x8b", "a compressed file"),
    (b"BZh", "a compressed file"),
    (b"\xfd7zXZ", "a compressed file"),
    (b"(\xb5/\xfd", "a compressed file"),
    (b"7z\xbc\xaf", "an archive"),
    (b"\x89PNG", "a picture"),
    (b"\xff\xd8\xff", "a picture"),
    (b"GIF8", "a picture"),
    (b"\x7fELF", "a program"),
    (b"\xca\xfe\xba\xbe", "a program"),
    (b"SQLite format 3\x00", "a database"),
)
CONFLUENCE_STORAGE = "application/vnd.atlassian.confluence.storage+xml"  # a name of ours: it has none
_RTF = b"{\\rtf"
_ARCHIVE = (
    "The document is an archive or an office document of a kind that is not read. "
    "Read are: docx, pptx, xlsx, odt."
)
# Most of it may be markup or outputs, so that its length says little.
_MOSTLY_MARKUP = frozenset({"html", "confluence", "notebook", "email"})
_BY_EXTENSION = {
    **dict.fromkeys(("md", "markdown", "mdown", "mkd", "mdx", "qmd"), "markdown"),
    **dict.fromkeys(("rst", "rest"), "rst"),
    **dict.fromkeys(("html", "htm", "xhtml"), "html"),
    **dict.fromkeys(("csv", "tsv"), "csv"),
    **dict.fromkeys(("adoc", "asciidoc", "asc"), "asciidoc"),
    **dict.fromkeys(("txt", "text", "log"), "text"),
    "org": "org",
    "ipynb": "notebook",
    "eml": "email",
}
_BY_MEDIA_TYPE = {
    "text/html": "html",
    "application/xhtml+xml": "html",
    "text/markdown": "markdown",
    "text/x-markdown": "markdown",
    "text/x-rst": "rst",
    "text/prs.fallenstein.rst": "rst",
    "text/csv": "csv",
    "text/tab-separated-values": "csv",
    "text/asciidoc": "asciidoc",
    "text/x-asciidoc": "asciidoc",
    "text/org": "org",
    "text/x-org": "org",
    "application/x-ipynb+json": "notebook",
    CONFLUENCE_STORAGE: "confluence",
    "message/rfc822": "email",
}
_LANGUAGE_BY_MEDIA_TYPE = {
    "json": "JSON",
    "yaml": "YAML",
    "toml": "TOML",
    "xml": "XML",
    "x-python": "Python",
    "javascript": "JavaScript",
}
_PAGE = re.compile(
    r"\s{0,200}(?:<\?xml[^>]{0,200}>\s{0,200})?(?:<!--[^>]{0,2000}-->\s{0,200})?<(?:!doctype\s+html|html|head|body)\b",
    re.IGNORECASE,
)
_CONFLUENCE = re.compile(r"<(?:ac:(?:structured-macro|layout|link|image|task-list|macro)|ri:\w{1,30})\b")
_CONFLUENCE_CHARS = 200_000
_TAG = re.compile(r"</?[a-zA-Z][^<>]{0,2000}>")
_API = re.compile(r"""^\s{0,8}["']?(?:openapi|swagger)["']?\s{0,8}:\s{0,8}["']?[1-9]""", re.MULTILINE)
_API_ON_ONE_LINE = re.compile(r"""[{,]\s{0,8}"(?:openapi|swagger)"\s{0,8}:\s{0,8}"[1-9]""")


def is_pdf(content: bytes) -> bool:
    return b"%PDF-" in content[:1024]


def needs_limits(raw: RawDocument) -> bool:
    """PDFs are read by native code, office files unpack to more, and every parser can be made to take long:
    these are read where they can be stopped."""
    size = len(raw.content)
    return (
        size > MAX_IN_PROCESS_BYTES
        or is_pdf(raw.content)
        or is_zip(raw.content)
        or (
            size > MAX_IN_PROCESS_RST_BYTES
            and _kind_by_name("", extract_file_name(raw.address), raw.media_type) == "rst"
        )
    )


def detect_kind(raw: RawDocument) -> DetectedDocument:
    """The kind of a document, and its text. Raises UnreadableDocument for what holds no text at all."""
    name = extract_file_name(raw.address)
    if is_pdf(raw.content):
        return DetectedDocument(raw, "pdf", "", name)
    if is_zip(raw.content):
        return DetectedDocument(raw, _detect_office_kind(raw.content), "", name)
    if is_old_office(raw.content):
        raise UnreadableDocument(explain_old_office(raw.content))
    if raw.content.startswith(_RTF):
        return DetectedDocument(raw, "rtf", "", name)
    for signature, words in _SIGNATURES:
        if raw.content.startswith(signature):
            raise UnreadableDocument(f"The document is {words}, not text.")
    text = decode_text(raw.content, raw.media_type)
    kind = _detect_text_kind(text, name, raw.media_type)
    language = _find_language(text, name, raw.media_type)
    missing_chars = 0
    if kind not in _MOSTLY_MARKUP:
        missing_chars = max(0, len(text) - MAX_TEXT_CHARS)
        text = text[:MAX_TEXT_CHARS]
    return DetectedDocument(raw, kind, text, name, language, missing_chars)


def _detect_office_kind(content: bytes) -> str:
    # Imported late: it brings the XML library, which most documents do not need.
    from ai_platform_engineering.knowledge_bases.reading.office_archive import OfficeArchive

    try:
        kind = OfficeArchive(content).detect_kind()
    except RecursionError:
        kind = None
    if kind is None:
        raise UnreadableDocument(_ARCHIVE)
    return kind


def extract_file_name(address: str) -> str:
    """The last part of a path or URL, or the host."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return to_single_line(address)
    if parts.scheme not in {"http", "https"}:
        return to_single_line(address.replace("\\", "/").rstrip("/").rpartition("/")[2])
    return to_single_line(
        unquote(parts.path.rstrip("/").rpartition("/")[2]) or parts.netloc.rpartition("@")[2]
    )


def _detect_text_kind(text: str, name: str, media_type: str) -> str:
    kind = _kind_by_name(text, name, media_type)
    is_page = _PAGE.match(text) is not None
    if is_page and kind != "email":
        kind = "html"
    if _is_markup(text, kind) and _CONFLUENCE.search(text[:_CONFLUENCE_CHARS]):
        return "confluence"
    if kind == "html" and not is_page and not _TAG.search(text[:100_000]):
        return "text"
    if kind in {"text", "code"} and _is_api(text, _find_language(text, name, media_type)):
        return "openapi"
    return kind


def _is_markup(text: str, kind: str) -> bool:
    return kind in {"html", "text", "code"} and text[:1000].lstrip().startswith("<")


def _kind_by_name(text: str, name: str, media_type: str) -> str:
    """The kind by file name and media type. A file name says more: servers call anything text/plain."""
    by_extension = _BY_EXTENSION.get(_extension(name))
    by_media_type = _BY_MEDIA_TYPE.get(_essence(media_type))
    if by_media_type == "html" and by_extension != "html" and _TAG.search(text[:2_000]):
        return "html"  # the page that shows a file, under the address of the file
    if by_extension:
        return by_extension
    if by_media_type and by_media_type != "html":
        return by_media_type
    if _find_language(text, name, media_type):
        return "code"
    return by_media_type or "text"


def _is_api(text: str, language: str) -> bool:
    if language not in {"JSON", "YAML", ""}:
        return False
    # The version may stand behind everything else, in what was sorted by key.
    return bool(_API.search(text) or _API_ON_ONE_LINE.search(text))


def _find_language(text: str, name: str, media_type: str) -> str:
    language = detect_language(name, text[:200])
    if language:
        return language
    subtype = _essence(media_type).partition("/")[2].rpartition("+")[2]
    data_format = subtype.removeprefix("x-")
    if data_format in DATA_FORMATS:
        subtype = data_format
    return _LANGUAGE_BY_MEDIA_TYPE.get(subtype, "")


def _extension(name: str) -> str:
    if "." in name:
        return name.rpartition(".")[2].lower()
    return ""


def _essence(media_type: str) -> str:
    return media_type.partition(";")[0].strip().lower()
