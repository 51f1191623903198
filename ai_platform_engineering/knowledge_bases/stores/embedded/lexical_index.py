"""The lexical half of the embedded index: tantivy, with words by their stem and identifiers as they are."""

import logging
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import tantivy

from ai_platform_engineering.knowledge_bases.search.tokens import (
    extract_identifiers,
    parse_query,
    split_camel_case,
)
from ai_platform_engineering.knowledge_bases.stores.embedded.sqlite_reads import LexicalEntry

log = logging.getLogger(__name__)

# Raised when fields or their analysis change: an index of another version is built again.
VERSION = 1
_HEAP = 64_000_000  # bytes that are kept before a segment is written
_FIELDS = (("body", 1.0), ("head", 0.5))  # head: title and headings, which body holds as well
_NAMES_WEIGHT = 1.0


class LexicalIndex:
    """An index in a folder. Only a writer may add, delete and commit; `reload` shows a reader what was committed."""

    def __init__(self, folder: Path, *, writes: bool) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._words = _words()
        self._index = tantivy.Index(_schema(), str(folder))
        self._index.register_tokenizer("words", self._words)
        self._index.register_tokenizer("names", _names())
        self._index.config_reader("manual")
        # One thread: documents keep their order, and memory its bound.
        self._writer = self._index.writer(_HEAP, 1) if writes else None

    @property
    def size(self) -> int:
        """Chunks that a search sees."""
        return int(self._index.searcher().num_docs)

    def add(self, entries: Iterable[LexicalEntry]) -> None:
        for entry in entries:
            head = "\n".join(
                dict.fromkeys((entry.title, *entry.headings))
            )  # a title is often the first heading as well
            body = f"{head}\n{entry.text}"
            document = tantivy.Document()
            document.add_unsigned("chunk", entry.chunk)
            document.add_unsigned("document", entry.document)
            document.add_text("datasource", entry.datasource)
            document.add_text("head", head)
            document.add_text("body", f"{body}\n{split_camel_case(body)}")
            document.add_text("names", extract_identifiers(body))
            self._writing.add_document(document)

    def delete(self, documents: Sequence[int]) -> None:
        if (
            documents
        ):  # by a query: `delete_documents_by_term` takes the number for a signed one, and deletes nothing
            self._writing.delete_documents_by_query(
                tantivy.Query.term_set_query(self._index.schema, "document", documents)
            )

    def commit(self) -> None:
        self._writing.commit()
        self._index.reload()

    def rollback(self) -> None:
        self._writing.rollback()

    def reload(self) -> None:
        self._index.reload()

    def close(self) -> None:
        if self._writer is not None:
            self._writer.wait_merging_threads()
            self._writer = None

    def search(
        self,
        query: str,
        limit: int,
        *,
        datasources: Iterable[str] = (),
        documents: Sequence[int] | None = None,
    ) -> list[int]:
        """The numbers of the best chunks. `documents`: only of these."""
        wanted = self._wanted(query)
        if wanted is None or (documents is not None and not documents):
            return []
        schema = self._index.schema
        among = [tantivy.Query.term_query(schema, "datasource", name) for name in datasources]
        must = [wanted]
        if among:
            must.append(
                _unscored(tantivy.Query.boolean_query([(tantivy.Occur.Should, query) for query in among]))
            )
        if documents is not None:
            must.append(_unscored(tantivy.Query.term_set_query(schema, "document", documents)))
        whole = (
            tantivy.Query.boolean_query([(tantivy.Occur.Must, query) for query in must])
            if len(must) > 1
            else wanted
        )
        searcher = self._index.searcher()
        found = searcher.search(whole, limit, count=False).hits
        chunks: list[Any] = searcher.fast_field_values("chunk", [address for _, address in found])
        # Equal scores come in the order of segments, which merging changes.
        ranked = sorted(
            zip((score for score, _ in found), chunks, strict=True), key=lambda one: (-one[0], one[1])
        )
        return [int(chunk) for _, chunk in ranked]

    def _wanted(self, query: str) -> tantivy.Query | None:
        """Any of the words; built from terms, so that nothing in a query is syntax."""
        words, identifiers = parse_query(query)
        schema = self._index.schema
        terms = dict.fromkeys(term for word in words for term in self._words.analyze(word))
        any_of = [
            tantivy.Query.boost_query(tantivy.Query.term_query(schema, field, term, "freq"), weight)
            for term in terms
            for field, weight in _FIELDS
        ]
        any_of += [
            tantivy.Query.boost_query(tantivy.Query.term_query(schema, "names", name, "freq"), _NAMES_WEIGHT)
            for name in identifiers
        ]
        if any_of:
            return tantivy.Query.boolean_query([(tantivy.Occur.Should, one) for one in any_of])
        return None

    @property
    def _writing(self) -> Any:
        assert self._writer is not None, "a reader does not write"
        return self._writer


def open_index(folder: Path, *, writes: bool) -> LexicalIndex:
    """The index in a folder; one of another version, or one that cannot be read, starts empty."""
    versioned = folder / f"v{VERSION}"
    if not writes:
        return LexicalIndex(versioned, writes=False)
    for other in folder.glob("v*"):
        if other != versioned:
            shutil.rmtree(other, ignore_errors=True)
    try:
        return LexicalIndex(versioned, writes=True)
    except ValueError as error:
        log.warning("The lexical index cannot be read and is built again: %s", error)
        return create_empty_index(folder)


def create_empty_index(folder: Path) -> LexicalIndex:
    versioned = folder / f"v{VERSION}"
    shutil.rmtree(versioned, ignore_errors=True)
    return LexicalIndex(versioned, writes=True)


def index_exists(folder: Path) -> bool:
    """Whether a reader finds an index."""
    return (folder / f"v{VERSION}" / "meta.json").exists()


def _unscored(query: tantivy.Query) -> tantivy.Query:
    return tantivy.Query.const_score_query(query, 0.0)


def _schema() -> tantivy.Schema:
    fields = tantivy.SchemaBuilder()
    fields.add_unsigned_field("chunk", fast=True)
    fields.add_unsigned_field("document", indexed=True)
    fields.add_text_field("datasource", tokenizer_name="raw", index_option="basic")
    fields.add_text_field("head", tokenizer_name="words", index_option="freq")
    fields.add_text_field("body", tokenizer_name="words", index_option="freq")
    fields.add_text_field("names", tokenizer_name="names", index_option="freq")
    return fields.build()


def _words() -> tantivy.TextAnalyzer:
    plain = tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.simple()).filter(tantivy.Filter.remove_long(80))
    return (
        plain.filter(tantivy.Filter.lowercase())
        .filter(tantivy.Filter.ascii_fold())
        .filter(tantivy.Filter.stemmer("english"))
        .build()
    )


def _names() -> tantivy.TextAnalyzer:
    return (
        tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.whitespace())
        .filter(tantivy.Filter.remove_long(130))
        .build()
    )
